package conf

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestHugeInput: the largest file that is read takes a bounded time, whatever it holds.
func TestHugeInput(t *testing.T) {
	fill := func(line func(i int) string) string {
		var b strings.Builder
		for i := 0; b.Len() < maxFileSize-200; i++ {
			b.WriteString(line(i))
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"unknown keys":   fill(func(i int) string { return fmt.Sprintf("k%d=1\n", i) }),
		"ports":          fill(func(int) string { return "[[port]]\n" }),
		"apps":           fill(func(int) string { return "[[app]]\nkind=\"echo\"\n" }),
		"addresses":      "[[port]]\naddresses=[" + fill(func(int) string { return "\"10.7.0.1/24\"," }) + "]",
		"nesting":        "x=" + strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"too deep":       "x=" + strings.Repeat("[", maxFileSize/2-10) + strings.Repeat("]", maxFileSize/2-10),
		"syntax errors":  fill(func(int) string { return "x\n" }),
		"inline nesting": "x=" + strings.Repeat("{a=", 5000) + "1" + strings.Repeat("}", 5000),
	} {
		start := time.Now()
		if _, err := Parse("f", []byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("%s: %d bytes took %v", name, len(text), d)
		} else {
			t.Logf("%s: %d bytes in %v", name, len(text), d)
		}
	}
}
