package control

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// SetRequest changes parameters of a module that runs.
type SetRequest struct {
	Kind   string            `json:"kind"`
	Name   string            `json:"name"`
	Params map[string]string `json:"params"` // by name; an empty value restores the default
}

func (r *SetRequest) check() error {
	if _, err := plugins.ParseKind(r.Kind); err != nil {
		return err
	}
	if r.Name == "" {
		return errors.New("the name of the module is missing")
	}
	if len(r.Params) == 0 {
		return errors.New("no parameter is given")
	}
	return nil
}

// SetReply is the answer to OpSet, once the module runs with the parameters on every worker.
type SetReply struct {
	Kind    string  `json:"kind"`
	Name    string  `json:"name"`
	Flows   int     `json:"flows"` // that go on with the new parameters
	Workers int     `json:"workers"`
	GapNS   int64   `json:"gap_ns"`  // as in SwapReply
	TookNS  int64   `json:"took_ns"` // the start of a fresh process included
	Params  []Param `json:"params"`  // all of the module
}

// WriteSet writes the result of `ctl set`.
func WriteSet(w io.Writer, r *SetReply) error {
	_, err := fmt.Fprintf(w, "%s %s: %d flows on %d workers go on with these parameters, gap %v, took %v\n", r.Kind, r.Name, r.Flows, r.Workers,
		time.Duration(r.GapNS), time.Duration(r.TookNS))
	if err != nil {
		return err
	}
	return writeParams(w, r.Params)
}

// writeParams writes parameters with their documentation.
func writeParams(w io.Writer, ps []Param) error {
	rows := [][]string{}
	for i := range ps {
		p := &ps[i]
		typ := p.Type
		if p.Unit != "" {
			typ += ", " + p.Unit
		}
		rows = append(rows, []string{"    " + p.Name + " = " + dash(p.Value), typ, "default " + dash(p.Default), p.Doc})
	}
	return table(w, rows)
}
