package host

import (
	le "encoding/binary"
	"testing"
	"unsafe"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// FuzzHostileModule lets the input write the module's part of the shared memory between the worker's turns: cursors,
// deadline and records. Nothing may panic, and what Poll returns must be a command that the module was entitled to give.
func FuzzHostileModule(f *testing.F) {
	cmd := rtx.Command{Flow: plugins.Flow{Slot: 1, Gen: 1}, AsOf: 1, Kind: rtx.CmdStatus}
	var good []byte
	good = append(good, unsafe.Slice((*byte)(unsafe.Pointer(&cmd)), unsafe.Sizeof(cmd))...)
	f.Add(append([]byte{1, 2, 1, 0}, good...))           // one record, cursor 1
	f.Add(append([]byte{0, 0, 1, 0xff}, good...))        // cursor far away
	f.Add([]byte{1, 1, 0, 0, 1, 0, 0, 0, 1, 3, 0, 0})    // the head goes back
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff}) // nothing but a deadline
	f.Fuzz(func(t *testing.T, in []byte) {
		const slots = 8
		seg := link.NewSegment[rtx.Event, rtx.Command](slots, slots)
		r, err := newRemote(&rtxSchema, seg, &seg.Host.Bell, Guard{}, false, make(chan struct{}, 1))
		if err != nil {
			t.Fatal(err)
		}
		commands := unsafe.Slice((*byte)(unsafe.Pointer(&seg.Commands[0])), slots*int(unsafe.Sizeof(cmd)))
		head := (*uint64)(unsafe.Pointer(&seg.Module.EvHead))
		tail := (*uint64)(unsafe.Pointer(&seg.Module.CmdTail))
		out := make([]rtx.Command, 5)
		last := map[plugins.Flow]uint64{}
		var id uint64
		for turn := plugins.Time(1); turn < 50; turn++ {
			var events []rtx.Event
			for slot := range uint32(3) {
				id++
				e := rtx.Event{Flow: plugins.Flow{Slot: slot, Gen: 1}, ID: id, Kind: rtx.EvAck}
				if turn == 1 {
					e.Kind = rtx.EvOpen
				}
				last[e.Flow] = id
				events = append(events, e)
			}
			n := r.Poll(turn*1000, events, out)
			if n > len(out) || r.State() == plugins.Dead && n > 0 {
				t.Fatalf("%d commands, state %v", n, r.State())
			}
			for _, c := range out[:n] {
				if l, ok := last[c.Flow]; !ok || c.AsOf > l {
					t.Fatalf("accepted %+v, last event %d", c, l)
				}
				if err := rtxSchema.check(&c); err != nil {
					t.Fatalf("accepted %+v: %v", c, err)
				}
			}
			if d := r.Deadline(); d < turn*1000 {
				t.Fatalf("deadline %d in the past", d)
			}
			r.Dropped(nil)
			if r.Room() < 0 || r.Room() > slots {
				t.Fatalf("room %d", r.Room())
			}
			// One step of the module: new cursors (small steps, or anything), a deadline, some bytes of commands.
			if len(in) < 4 {
				return
			}
			*head += uint64(int8(in[0]))
			*tail += uint64(int8(in[1]))
			if in[3] >= 0x80 {
				*tail += uint64(in[3]) << 56
			}
			seg.Module.Deadline.Store(int64(le.LittleEndian.Uint32(in)) - 1<<31)
			k := min(int(in[2]), 1) * min(len(in)-4, int(unsafe.Sizeof(cmd)))
			copy(commands[int(in[3])%slots*int(unsafe.Sizeof(cmd)):], in[4:4+k])
			in = in[4+k:]
		}
	})
}
