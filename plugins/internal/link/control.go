package link

import (
	"context"
	"encoding/json"
	"time"

	plugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// ProtocolVersion is the version of the control messages, the shared memory and the meaning of the records. It changes when a
// module built before would misunderstand one built after; a mere change of layout is found by Layout.
const ProtocolVersion = 2

// Handshake tells a module process from a program that was started by mistake. It is no security.
var Handshake = plugin.HandshakeConfig{
	ProtocolVersion:  ProtocolVersion,
	MagicCookieKey:   "FASTPATH_MODULE",
	MagicCookieValue: "0f7b2b4e-rings",
}

// PluginName is the name under which go-plugin dispenses the control service.
const PluginName = "module"

// Description is what a process says about a module that it can serve.
type Description struct {
	Kind    string          `json:"kind"`
	Name    string          `json:"name"`
	Version string          `json:"version"`
	Params  []plugins.Param `json:"params,omitempty"`
	Needs   []string        `json:"needs,omitempty"`
	Layout  uint64          `json:"layout,string"`
}

// Descriptions are all modules of a process.
type Descriptions struct {
	Modules []Description `json:"modules"`
}

// Chosen is a module that the process is to run: one instance per worker.
type Chosen struct {
	Kind   string            `json:"kind"`
	Name   string            `json:"name"`
	Params map[string]string `json:"params,omitempty"`
	Seeds  []uint64          `json:"seeds"` // one per worker
}

// AttachRequest starts modules on the inherited shared memory.
type AttachRequest struct {
	Geometry Geometry `json:"geometry"`
	Modules  []Chosen `json:"modules"` // at most one of each kind
	// CPUs are the processors that the process has for itself: one loop is pinned to each. Without any, one loop runs all workers.
	CPUs     []int         `json:"cpus,omitempty"`
	Spin     time.Duration `json:"spin"` // a loop parks when it has found no event for this long
	Lockstep bool          `json:"lockstep,omitempty"`
}

// Shape is the geometry with the kinds of the modules, in their order.
func (r *AttachRequest) Shape() (Geometry, error) {
	g := r.Geometry
	g.Kinds = nil
	for i := range r.Modules {
		k, err := plugins.ParseKind(r.Modules[i].Kind)
		if err != nil {
			return g, err
		}
		g.Kinds = append(g.Kinds, k)
	}
	return g, g.check()
}

// Loops is the number of loops; loop i runs all modules of the workers i, i+Loops, i+2*Loops ..., and waits on the bell of the first
// kind's worker i.
func (r *AttachRequest) Loops() int { return max(1, min(len(r.CPUs), r.Geometry.Workers)) }

// Empty is the message without content.
type Empty struct{}

// Server is the control service of a module process.
type Server interface {
	Describe() (Descriptions, error)
	Attach(*AttachRequest) error
}

// The service is described by hand, and its messages travel as JSON: two calls in the life of a process do not justify
// generated code, and every field stays readable in one place.
const serviceName = "fastpath.Module"

func handler[Req, Resp any](call func(Server, *Req) (*Resp, error)) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		req := new(Req)
		if err := dec(req); err != nil {
			return nil, err
		}
		return call(srv.(Server), req)
	}
}

var serviceDesc = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*Server)(nil),
	Methods: []grpc.MethodDesc{
		{MethodName: "Describe", Handler: handler(func(s Server, _ *Empty) (*Descriptions, error) {
			d, err := s.Describe()
			return &d, err
		})},
		{MethodName: "Attach", Handler: handler(func(s Server, r *AttachRequest) (*Empty, error) {
			return &Empty{}, s.Attach(r)
		})},
	},
}

// codec is the JSON codec, under a name of our own: the registry belongs to the whole program.
type codec struct{}

const codecName = "fastpath-json"

func (codec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (codec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }
func (codec) Name() string                       { return codecName }

func init() { encoding.RegisterCodec(codec{}) }

// Client calls the control service of a module process.
type Client struct{ conn *grpc.ClientConn }

func (c *Client) call(ctx context.Context, method string, req, resp any) error {
	return c.conn.Invoke(ctx, "/"+serviceName+"/"+method, req, resp, grpc.CallContentSubtype(codecName))
}

// Describe asks the process what it can serve.
func (c *Client) Describe(ctx context.Context) ([]Description, error) {
	var d Descriptions
	err := c.call(ctx, "Describe", &Empty{}, &d)
	return d.Modules, err
}

// Attach starts the process's loops.
func (c *Client) Attach(ctx context.Context, r *AttachRequest) error {
	return c.call(ctx, "Attach", r, &Empty{})
}

// Plugin connects the service to go-plugin. Impl is nil in the host.
type Plugin struct {
	plugin.NetRPCUnsupportedPlugin
	Impl Server
}

// GRPCServer registers the service in a module process.
func (p *Plugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	s.RegisterService(&serviceDesc, p.Impl)
	return nil
}

// GRPCClient returns the *Client for the host.
func (p *Plugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return &Client{conn}, nil
}

// Plugins is the set of plugins of this protocol version.
func Plugins(impl Server) map[int]plugin.PluginSet {
	return map[int]plugin.PluginSet{ProtocolVersion: {PluginName: &Plugin{Impl: impl}}}
}
