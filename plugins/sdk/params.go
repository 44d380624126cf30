package sdk

import (
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/param"
)

// Params reads parameters by the documentation that Info.Params gives: a default for what is missing, an error that names the
// key for what is unknown or out of range. Its methods are Uint, Duration, Bool and, after them, Err.
type Params = param.Reader

// ReadParams starts reading p as the parameters of the module that info describes.
func ReadParams(info plugins.Info, p plugins.Params) *Params { return param.Read(info, p) }
