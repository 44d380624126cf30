package sock_test

import (
	"context"
	"net"
	"net/rpc"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// gRPC over our listener and dialer: calls at once, a stream, cancellation, an orderly stop.
func TestGRPC(t *testing.T) {
	sa, sb := pair(t, stack.Config{Workers: make([]stack.WorkerConfig, 2)})
	ln := must(sock.Listen(sb, "tcp", ":50051"))
	srv := grpc.NewServer()
	h := health.NewServer()
	pb.RegisterHealthServer(srv, h)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	d := sock.Dialer{Stack: sa}
	conn, err := grpc.NewClient("passthrough:///10.0.0.2:50051", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := pb.NewHealthClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if r, err := c.Check(ctx, &pb.HealthCheckRequest{}); err != nil || r.Status != pb.HealthCheckResponse_SERVING {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
	wg.Wait()
	if _, err := c.Check(ctx, &pb.HealthCheckRequest{Service: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown service: %v", err)
	}
	watching, stop := context.WithCancel(ctx)
	w, err := c.Watch(watching, &pb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []pb.HealthCheckResponse_ServingStatus{pb.HealthCheckResponse_SERVING, pb.HealthCheckResponse_NOT_SERVING, pb.HealthCheckResponse_SERVING} {
		if i > 0 {
			h.SetServingStatus("", want)
		}
		if r, err := w.Recv(); err != nil || r.Status != want {
			t.Fatalf("%v, %v; want %v", r, err, want)
		}
	}
	stop()
	if _, err := w.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("after cancellation: %v", err)
	}
	srv.GracefulStop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := c.Check(short, &pb.HealthCheckRequest{}); err == nil {
		t.Error("a call to a server that has stopped succeeds")
	}
}

type Arith struct{}

func (Arith) Multiply(args [2]int, reply *int) error { *reply = args[0] * args[1]; return nil }

func TestNetRPC(t *testing.T) {
	sa, sb := pair(t, stack.Config{})
	ln := must(sock.Listen(sb, "tcp", ":1234"))
	defer ln.Close()
	srv := rpc.NewServer()
	if err := srv.Register(Arith{}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go srv.ServeConn(c)
		}
	}()
	d := sock.Dialer{Stack: sa}
	c := rpc.NewClient(must(d.Dial("tcp", "10.0.0.2:1234")))
	defer c.Close()
	for i := range 100 {
		var got int
		if err := c.Call("Arith.Multiply", [2]int{i, i}, &got); err != nil || got != i*i {
			t.Fatalf("%d, %v", got, err)
		}
	}
}
