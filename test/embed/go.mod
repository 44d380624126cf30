module example.com/embed

go 1.26.0

require github.com/fastpath-tcp/fastpath v0.0.0

require (
	github.com/google/btree v1.1.3 // indirect
	github.com/vishvananda/netlink v1.3.1 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace github.com/fastpath-tcp/fastpath => ../..
