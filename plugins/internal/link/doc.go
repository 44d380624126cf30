// Package link is what the host of modules and a module process agree on: the handshake, the control messages, the geometry
// of the shared memory, the layout hash of the records in it, and the loop that runs a module between its two rings.
package link
