package control

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// FilterRequest are the arguments of OpFilter. Without any it asks for the rules.
type FilterRequest struct {
	Load   bool   `json:"load,omitempty"`   // replace the rules by those of Text
	Reload bool   `json:"reload,omitempty"` // replace them by those of the daemon's configuration file, read again
	File   string `json:"file,omitempty"`   // for errors
	Text   string `json:"text,omitempty"`   // a file with [[filter]] and [firewall]
}

func (r *FilterRequest) check() error {
	if r.Load && r.Reload {
		return errors.New("load and reload exclude each other")
	}
	if !r.Load && r.Text+r.File != "" {
		return errors.New("a text, but nothing to load")
	}
	return nil
}

// FilterReply is the answer to OpFilter: the packet filter that is in force, with what has been counted since it is.
type FilterReply struct {
	SinceUnixNS    int64        `json:"since_unix_ns"`
	Rules          []FilterRule `json:"rules"`
	Default        string       `json:"default"` // for packets that no rule matched
	DefaultPackets uint64       `json:"default_packets"`
	DefaultBytes   uint64       `json:"default_bytes"`
}

// FilterRule is a rule, in the words of the configuration. What is empty matches all.
type FilterRule struct {
	Name             string   `json:"name"`
	Action           string   `json:"action"`
	Port             string   `json:"port"`
	Source           []string `json:"source"`
	Destination      []string `json:"destination"`
	Protocol         string   `json:"protocol"`
	SourcePorts      []string `json:"source_ports"`
	DestinationPorts []string `json:"destination_ports"`
	State            string   `json:"state"`
	Packets          uint64   `json:"packets"`
	Bytes            uint64   `json:"bytes"` // of IP packets
}

// WriteFilter writes the table of `ctl filter`.
func WriteFilter(w io.Writer, r *FilterReply) error {
	rows := [][]string{{"#", "NAME", "ACTION", "PORT", "PROTOCOL", "SOURCE", "PORTS", "DESTINATION", "PORTS", "STATE", "PACKETS", "BYTES"}}
	any := func(list ...string) string {
		if s := strings.Join(list, ","); s != "" {
			return s
		}
		return "any"
	}
	for i := range r.Rules {
		f := &r.Rules[i]
		rows = append(rows, []string{strconv.Itoa(i), f.Name, f.Action, any(f.Port), any(f.Protocol), any(f.Source...), any(f.SourcePorts...),
			any(f.Destination...), any(f.DestinationPorts...), any(f.State), u(f.Packets), u(f.Bytes)})
	}
	rows = append(rows, []string{"-", "default", r.Default, "any", "any", "any", "any", "any", "any", "any", u(r.DefaultPackets), u(r.DefaultBytes)})
	return table(w, rows)
}

// WriteFilterLoaded writes the result of `ctl filter load`.
func WriteFilterLoaded(w io.Writer, r *FilterReply) error {
	_, err := fmt.Fprintf(w, "%d rules in force, default %s\n", len(r.Rules), r.Default)
	return err
}
