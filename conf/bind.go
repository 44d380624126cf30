package conf

import (
	"encoding"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// bind copies the values of the table at key into the struct v. Each key that v does not have and each value that does not fit
// is an error at its line; the others are set.
func (d *document) bind(key string, table map[string]any, v reflect.Value) {
	fields := fieldsOf(v)
	for _, name := range slices.Sorted(maps.Keys(table)) {
		k := join(key, name)
		f, ok := fields[name]
		if !ok {
			d.odd[key] = true
			d.errorf(d.line(k), k, "unknown key%s", suggest(name, slices.Sorted(maps.Keys(fields))))
			continue
		}
		d.set(k, table[name], f.value, f.one)
	}
}

type field struct {
	value reflect.Value
	one   string // values that are allowed, separated by spaces
}

// fieldsOf returns the fields of the struct v by TOML name, those of embedded structs included.
func fieldsOf(v reflect.Value) map[string]field {
	fields := map[string]field{}
	for i := range v.NumField() {
		sf := v.Type().Field(i)
		if sf.Anonymous {
			maps.Copy(fields, fieldsOf(v.Field(i)))
		} else if name := sf.Tag.Get("toml"); name != "" {
			fields[name] = field{v.Field(i), sf.Tag.Get("one")}
		}
	}
	return fields
}

// set stores the TOML value x in v.
func (d *document) set(key string, x any, v reflect.Value, one string) {
	mismatch := func(want string) { d.errorf(d.line(key), key, "want %s, have %s", want, describe(x)) }
	if t, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if s, ok := x.(string); !ok {
			mismatch("a string in quotes")
		} else if err := t.UnmarshalText([]byte(s)); err != nil {
			switch t.(type) {
			case *netip.Prefix:
				err = fmt.Errorf("%q is not an address with its network; write it as \"10.7.0.1/24\"", s)
			case *netip.Addr:
				err = fmt.Errorf("%q is not an address; write it as \"10.7.0.254\"", s)
			case *netip.AddrPort:
				err = fmt.Errorf("%q is not an address with a port; write it as \"10.7.0.1:80\"", s)
			}
			d.errorf(d.line(key), key, "%v", err)
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		s, ok := x.(string)
		if !ok {
			mismatch("a string in quotes")
		} else if allowed := strings.Fields(one); one != "" && !slices.Contains(allowed, s) {
			d.errorf(d.line(key), key, "%q is not one of %s", s, strings.Join(allowed, ", "))
		} else {
			v.SetString(s)
		}
	case reflect.Bool:
		if b, ok := x.(bool); ok {
			v.SetBool(b)
		} else {
			mismatch("true or false")
		}
	case reflect.Int, reflect.Uint64:
		d.setInt(key, x, v, mismatch)
	case reflect.Struct:
		if t, ok := x.(map[string]any); ok {
			d.bind(key, t, v)
		} else {
			mismatch("a table")
		}
	case reflect.Slice:
		d.setSlice(key, x, v, mismatch)
	case reflect.Map:
		d.setParams(key, x, v, mismatch)
	default:
		panic("conf: no rule for " + v.Type().String())
	}
}

func (d *document) setInt(key string, x any, v reflect.Value, mismatch func(string)) {
	n, ok := x.(int64)
	switch {
	case !ok:
		mismatch("an integer")
	case v.Kind() == reflect.Int:
		v.SetInt(n)
	case n < 0:
		d.errorf(d.line(key), key, "%d is negative", n)
	default:
		v.SetUint(uint64(n))
	}
}

func (d *document) setSlice(key string, x any, v reflect.Value, mismatch func(string)) {
	list, ok := x.([]any)
	if !ok {
		if v.Type().Elem().Kind() == reflect.Struct && v.Type().Elem().NumField() > 0 && v.Type().Elem().Field(0).Tag.Get("toml") != "" {
			mismatch("an array of tables, [[" + key + "]]")
		} else {
			mismatch("an array")
		}
		return
	}
	if len(list) > maxList {
		d.errorf(d.line(key), key, "%d elements are more than %d", len(list), maxList)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
	for i, e := range list {
		if s, ok := v.Index(i).Addr().Interface().(interface{ setDefaults() }); ok {
			s.setDefaults()
		}
		d.set(fmt.Sprintf("%s[%d]", key, i), e, v.Index(i), "")
	}
}

// maxList bounds the length of each list, so that comparing all pairs stays cheap.
const maxList = 256

// setParams stores a table of scalars in text form: a module knows the types of its own parameters.
func (d *document) setParams(key string, x any, v reflect.Value, mismatch func(string)) {
	table, ok := x.(map[string]any)
	if !ok {
		mismatch("a table")
		return
	}
	params := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		switch p := table[name].(type) {
		case string:
			params[name] = p
		case int64:
			params[name] = strconv.FormatInt(p, 10)
		case bool:
			params[name] = strconv.FormatBool(p)
		case float64:
			params[name] = strconv.FormatFloat(p, 'g', -1, 64)
		default:
			k := join(key, name)
			d.errorf(d.line(k), k, "want a string, number or boolean, have %s", describe(p))
		}
	}
	v.Set(reflect.ValueOf(params))
}

func describe(x any) string {
	switch x := x.(type) {
	case string:
		return fmt.Sprintf("the string %q", x)
	case int64:
		return fmt.Sprintf("the integer %d", x)
	case float64:
		return fmt.Sprintf("the number %v", x)
	case bool:
		return fmt.Sprintf("%v", x)
	case []any:
		return "an array"
	case map[string]any:
		return "a table"
	}
	return "a date or time"
}

// suggest names the known key that differs from name by the fewest edits, if it is close.
func suggest(name string, known []string) string {
	best, bestDist := "", 3
	for _, k := range known {
		if dist := editDistance(name, k, bestDist); dist < bestDist {
			best, bestDist = k, dist
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// editDistance is the Levenshtein distance of a and b; at least limit if it is not below limit.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost = 1 + min(diag, row[j], row[j+1])
			}
			diag, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
