package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func tcpPair(t *testing.T) (c, s net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if c, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if s, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c, s
}

// fake is a daemon.
type fake struct {
	swaps  []SwapRequest
	ended  chan error // how a capture ended
	big    int        // connections in SS
	frames int        // that Capture has, then it waits
}

func (f *fake) Info(context.Context) (*Info, error) { return &Info{PID: os.Getpid()}, nil }

func (f *fake) SS(_ context.Context, r SSRequest) (*SSReply, error) {
	reply := &SSReply{}
	for range f.big {
		reply.Conns = append(reply.Conns, sample().Conns[1])
	}
	reply.Omitted = r.Limit
	return reply, nil
}

func (f *fake) Modules(context.Context) (*ModulesReply, error) { return nil, errors.New("no modules") }

func (f *fake) Swap(_ context.Context, r SwapRequest) (*SwapReply, error) {
	f.swaps = append(f.swaps, r)
	if r.Name == "bad" {
		return nil, Refuse("%s has the wrong checksum", r.Name)
	}
	return &SwapReply{Kind: r.Kind, To: r.Name}, nil
}

func (f *fake) Set(_ context.Context, r SetRequest) (*SetReply, error) {
	return &SetReply{Kind: r.Kind, Name: r.Name}, nil
}

func (f *fake) Filter(_ context.Context, r FilterRequest) (*FilterReply, error) {
	return &FilterReply{Default: r.File}, nil
}

func (f *fake) Stat(context.Context) (*StatReply, error) { return &StatReply{}, nil }

func (f *fake) Events(ctx context.Context, r EventsRequest, emit func(Event) error) error {
	for i := range r.Last {
		if err := emit(Event{Seq: uint64(i + 1)}); err != nil {
			return err
		}
	}
	if r.Follow {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (f *fake) Capture(ctx context.Context, r CaptureRequest, emit func(Frame) error) (*CaptureSummary, error) {
	var sum CaptureSummary
	var err error
	for i := 0; i < f.frames && (r.Count == 0 || i < r.Count) && err == nil; i++ {
		err = emit(Frame{LengthBytes: 1514, Data: make([]byte, 1514)})
		sum.Captured++
	}
	if r.Count == 0 && err == nil {
		<-ctx.Done()
	}
	if f.ended != nil {
		f.ended <- err
	}
	return &sum, err
}

func start(t *testing.T, h Handler) (*Server, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sub", "control.sock")
	s, err := Listen(path, h, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() { s.Close(); wg.Wait() })
	return s, path
}

func dial(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestCalls(t *testing.T) {
	f := &fake{big: 3000}
	_, path := start(t, f)
	c := dial(t, path)
	var info Info
	if err := c.Call(t.Context(), OpInfo, nil, &info); err != nil || info.PID != os.Getpid() {
		t.Errorf("info: %+v, %v", info, err)
	}
	var ss SSReply // several megabytes on one line
	if err := c.Call(t.Context(), OpSS, SSRequest{}, &ss); err != nil || len(ss.Conns) != 3000 || ss.Omitted != DefaultLimit {
		t.Errorf("ss: %d connections, limit %d, %v", len(ss.Conns), ss.Omitted, err)
	}
	var swap SwapReply
	if err := c.Call(t.Context(), OpSwap, SwapRequest{Kind: "cong", Name: "cdg"}, &swap); err != nil || swap.To != "cdg" {
		t.Errorf("swap: %+v, %v", swap, err)
	}
	for _, tt := range []struct {
		op   string
		args any
		code string
		text string
	}{
		{OpSwap, SwapRequest{Kind: "cong", Name: "bad"}, CodeRefused, "wrong checksum"},
		{OpSwap, SwapRequest{Kind: "kong", Name: "bbr"}, CodeBadRequest, "unknown module kind"},
		{OpSwap, SwapRequest{Kind: "cong", Name: ""}, CodeBadRequest, "missing"},
		{OpSwap, SwapRequest{Kind: "cong", Name: "cdg", MaxGoodputDropPercent: 10}, CodeBadRequest, "without its time"},
		{OpSwap, SwapRequest{Kind: "cong", Name: "cdg", TrialNS: 1e9, NewOnly: true}, CodeBadRequest, "present flows"},
		{OpSwap, SwapRequest{Kind: "cong", Name: "cdg", To: "/x", ToSHA256: strings.Repeat("ab", 32), Percent: 5}, CodeBadRequest, "no selection"},
		{OpSwap, SwapRequest{Kind: "cong", Name: "cdg", To: "/x", ToSHA256: strings.Repeat("ab", 32), TrialNS: 1e9, DryRun: true}, CodeBadRequest, "no dry run"},
		{OpSwap, SwapRequest{Kind: "cong", Name: "cdg", Percent: 101}, CodeBadRequest, "101 is no percentage"},
		{OpFilter, FilterRequest{Load: true, Reload: true}, CodeBadRequest, "exclude"},
		{OpFilter, FilterRequest{Text: "x"}, CodeBadRequest, "nothing to load"},
		{OpModules, nil, CodeInternal, "no modules"},
		{OpSS, SSRequest{States: []string{"OPEN"}}, CodeBadRequest, "unknown state"},
		{OpCapture, CaptureRequest{Filter: "tpc"}, CodeBadRequest, "unknown word"},
		{OpEvents, map[string]int{"lats": 1}, CodeBadRequest, "unknown field"},
		{"reboot", nil, CodeBadRequest, "unknown operation"},
	} {
		err := c.Call(t.Context(), tt.op, tt.args, nil)
		var e *Error
		if !errors.As(err, &e) || e.Code != tt.code || !strings.Contains(e.Message, tt.text) {
			t.Errorf("%s %v: %v", tt.op, tt.args, err)
		}
	}
	if len(f.swaps) != 2 {
		t.Errorf("the daemon saw %v", f.swaps)
	}
}

func TestStreamEndsByItself(t *testing.T) {
	_, path := start(t, &fake{frames: 5000})
	n := 0
	var sum CaptureSummary
	err := dial(t, path).Stream(t.Context(), OpCapture, CaptureRequest{Count: 2000}, func(b json.RawMessage) error {
		var f Frame
		n++
		if err := json.Unmarshal(b, &f); err != nil || len(f.Data) != 1514 {
			t.Errorf("frame %d: %d bytes, %v", n, len(f.Data), err)
		}
		return nil
	}, &sum)
	if err != nil || n != 2000 || sum.Captured != 2000 {
		t.Errorf("%d frames, %+v, %v", n, sum, err)
	}
}

// TestStreamEndedByClient: on ^C the client asks for the end and still gets the summary.
func TestStreamEndedByClient(t *testing.T) {
	_, path := start(t, &fake{frames: 10})
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	var sum CaptureSummary
	err := dial(t, path).Stream(ctx, OpCapture, CaptureRequest{}, func(json.RawMessage) error {
		if n++; n == 10 { // they arrive although the stream goes on
			cancel()
		}
		return nil
	}, &sum)
	if err != nil || sum.Captured != 10 {
		t.Errorf("%d frames, %+v, %v", n, sum, err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	if err := dial(t, path).Stream(ctx, OpEvents, EventsRequest{Follow: true, Last: 1}, func(json.RawMessage) error { cancel(); return nil }, nil); err != nil {
		t.Errorf("events: %v", err)
	}
	if err := dial(t, path).Stream(ctx, OpEvents, EventsRequest{}, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled before: %v", err)
	}
}

// TestStreamClientGone: a client that vanishes ends its capture.
func TestStreamClientGone(t *testing.T) {
	f := &fake{frames: 1, ended: make(chan error, 1)}
	_, path := start(t, f)
	c := dial(t, path)
	fmt.Fprintf(c.c, `{"v":1,"op":"capture"}`+"\n")
	if _, err := c.line(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	select {
	case <-f.ended:
	case <-time.After(10 * time.Second):
		t.Error("the capture goes on")
	}
}

func TestServerCloseEndsStreams(t *testing.T) {
	s, path := start(t, &fake{})
	c := dial(t, path)
	done := make(chan error, 1)
	go func() {
		done <- c.Stream(context.Background(), OpEvents, EventsRequest{Follow: true, Last: 1}, func(json.RawMessage) error {
			go s.Close()
			return nil
		}, nil)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the stream goes on")
	}
}

// raw sends lines and returns the answers.
func raw(t *testing.T, path, lines string) []Response {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, lines); err != nil && !errors.Is(err, unix.EPIPE) {
		t.Fatal(err)
	}
	_ = c.(*net.UnixConn).CloseWrite()
	var out []Response
	for sc := bufio.NewScanner(c); sc.Scan(); {
		var r Response
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			t.Fatalf("%q: %v", sc.Bytes(), err)
		}
		out = append(out, r)
	}
	return out
}

func TestRawRequests(t *testing.T) {
	_, path := start(t, &fake{})
	for _, tt := range []struct {
		lines string
		want  []string // code of each answer; "" for data
	}{
		{`{"v":1,"op":"info"}` + "\n", []string{""}},
		{`{"v":1,"op":"info"}`, []string{""}}, // without the newline, as from printf
		{`{"v":1,"op":"info"}` + "\n" + `{"v":1,"op":"stat"}` + "\n", []string{"", ""}},
		{`{"v":2,"op":"info"}` + "\n", []string{CodeVersion}},
		{`{"op":"info"}` + "\n", []string{CodeVersion}},
		{`{"v":1,"op":"info","x":1}` + "\n" + `{"v":1,"op":"info"}` + "\n", []string{CodeBadRequest, ""}},
		{`{"v":1,"op":"info"} {}` + "\n", []string{CodeBadRequest}},
		{"GET / HTTP/1.1\r\n", []string{CodeBadRequest}},
		{"\n", []string{CodeBadRequest}},
		{"", nil},
		{`{"v":1,"op":"info","args":"` + strings.Repeat("x", MaxRequest) + `"}` + "\n", []string{CodeBadRequest}},
	} {
		var got []string
		for _, r := range raw(t, path, tt.lines) {
			if r.Error != nil {
				got = append(got, r.Error.Code)
			} else {
				got = append(got, "")
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(tt.want) || len(got) != len(tt.want) {
			t.Errorf("%.60q: %q, want %q", tt.lines, got, tt.want)
		}
	}
}

func TestTooManyClients(t *testing.T) {
	_, path := start(t, &fake{})
	for range maxClients {
		c := dial(t, path)
		if err := c.Call(t.Context(), OpInfo, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	err := dial(t, path).Call(t.Context(), OpInfo, nil, nil)
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeBusy {
		t.Errorf("one more: %v", err)
	}
}

func TestDenied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := Listen(path, &fake{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	creds := make(chan unix.Ucred, 1)
	s.allow = func(c *unix.Ucred) bool { creds <- *c; return false }
	go s.Serve()
	defer s.Close()
	err = dial(t, path).Call(t.Context(), OpInfo, nil, nil)
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeDenied {
		t.Errorf("denied user: %v", err)
	}
	if seen := <-creds; int(seen.Pid) != os.Getpid() || int(seen.Uid) != os.Getuid() {
		t.Errorf("credentials %+v", seen)
	}
	me := uint32(os.Geteuid())
	if !sameUser(&unix.Ucred{Uid: 0}) || !sameUser(&unix.Ucred{Uid: me}) || sameUser(&unix.Ucred{Uid: me + 1}) {
		t.Error("sameUser")
	}
}

func TestSocketMode(t *testing.T) {
	_, path := start(t, &fake{})
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

func TestSecondDaemon(t *testing.T) {
	s, path := start(t, &fake{})
	if _, err := Listen(path, &fake{}, slog.Default()); !errors.Is(err, ErrRunning) {
		t.Errorf("second daemon: %v", err)
	}
	// Even if somebody removed the lock.
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, &fake{}, slog.Default()); !errors.Is(err, ErrRunning) {
		t.Errorf("second daemon without the lock: %v", err)
	}
	if err := dial(t, path).Call(t.Context(), OpInfo, nil, nil); err != nil {
		t.Errorf("the first daemon: %v", err)
	}
	s.Close()
	if left, _ := filepath.Glob(path + "*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	again, err := Listen(path, &fake{}, slog.Default())
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	again.Close()
}

// TestStaleSocket: what a killed daemon leaves behind is replaced.
func TestStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Listen(path, &fake{}, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// TestListenRace: of many daemons that start at once on a stale socket, exactly one gets it.
func TestListenRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	for range 50 {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var won []*Server
		for range 8 {
			wg.Go(func() {
				s, err := Listen(path, &fake{}, slog.Default())
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, s)
				} else if !errors.Is(err, ErrRunning) {
					t.Errorf("Listen: %v", err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d daemons have the socket", len(won))
		}
		if c, err := Dial(t.Context(), path); err != nil {
			t.Fatalf("the winner's socket: %v", err)
		} else {
			c.Close()
		}
		won[0].Close()
	}
}

func TestListenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(file, &fake{}, slog.Default()); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file: %v", err)
	}
	if b, _ := os.ReadFile(file); string(b) != "precious" {
		t.Error("the file is gone")
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(filepath.Join(open, "s"), &fake{}, slog.Default()); err == nil || !strings.Contains(err.Error(), "replace files") {
		t.Errorf("a directory that all may write: %v", err)
	}
	if err := os.Chmod(open, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	s, err := Listen(filepath.Join(open, "s"), &fake{}, slog.Default())
	if err != nil {
		t.Fatalf("a directory like /tmp: %v", err)
	}
	s.Close()
}

func TestDialErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Dial(t.Context(), filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "no daemon listens") {
		t.Errorf("no socket: %v", err)
	}
}

func BenchmarkCall(b *testing.B) {
	path := filepath.Join(b.TempDir(), "s")
	s, err := Listen(path, &fake{}, slog.Default())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	go s.Serve()
	c, err := Dial(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for b.Loop() {
		if err := c.Call(b.Context(), OpStat, nil, &StatReply{}); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzParseRequest: any line gives arguments of its operation's type, or an error with a code.
func FuzzParseRequest(f *testing.F) {
	for _, s := range []string{
		`{"v":1,"op":"info"}`, `{"v":1,"op":"ss","args":{"states":["ESTAB"],"local":"10.7.0.0/24","peer_port":80}}`, `{"v":1,"op":"modules","args":{}}`,
		`{"v":1,"op":"swap","args":{"kind":"cong","name":"cdg"}}`, `{"v":1,"op":"stat"}`, `{"v":1,"op":"set","args":{"kind":"cong","name":"cdg","params":{"window":"16"}}}`,
		`{"v":1,"op":"swap","args":{"kind":"cong","name":"x","to":"/m","to_sha256":"ab"}}`, `{"v":1,"op":"filter","args":{"load":true,"file":"f","text":"[firewall]"}}`, `{"v":1,"op":"events","args":{"follow":true,"last":7}}`,
		`{"v":1,"op":"capture","args":{"filter":"tcp and port 80","count":5,"snap_len":128}}`, `{"v":9}`, `[]`, `{"v":1,"op":"ss","args":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		op, args, err := ParseRequest(line)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeBadRequest && e.Code != CodeVersion {
				t.Fatalf("%v", err)
			}
			return
		}
		switch a := args.(type) {
		case *SSRequest:
			if op != OpSS || a.Limit <= 0 {
				t.Fatalf("%s: %+v", op, a)
			}
		case *SwapRequest:
			if op != OpSwap || a.Name == "" {
				t.Fatalf("%s: %+v", op, a)
			}
		case *SetRequest:
			if op != OpSet || len(a.Params) == 0 {
				t.Fatalf("%s: %+v", op, a)
			}
		case *FilterRequest:
			if op != OpFilter || a.Load && a.Reload || !a.Load && a.Text != "" {
				t.Fatalf("%s: %+v", op, a)
			}
		case *EventsRequest:
			if op != OpEvents || a.Last < 0 {
				t.Fatalf("%s: %+v", op, a)
			}
		case *CaptureRequest:
			if op != OpCapture || a.Count < 0 || a.SnapLen < 0 {
				t.Fatalf("%s: %+v", op, a)
			}
		case *struct{}:
		default:
			t.Fatalf("%s: %T", op, args)
		}
	})
}
