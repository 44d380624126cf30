package conf

import (
	"strings"
	"testing"
)

func TestException(t *testing.T) {
	const port = "[[port]]\nname = \"p\"\ndriver = \"afpacket\"\ninterface = \"eth0\"\naddresses = [\"10.7.0.1/24\"]\n"
	c, err := Parse("f", []byte(port+"exception = \"tap0\"\nexception_addresses = [\"10.7.0.9/24\"]\nexception_rate = 500\n"))
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Ports[0]; p.Exception != "tap0" || p.ExceptionRate != 500 || len(p.ExceptionAddresses) != 1 {
		t.Errorf("%+v", p)
	}
	for in, want := range map[string]string{
		"exception_rate = 5":                                             "f:6: port[0].exception_rate: has no meaning without exception",
		"exception = \"a-name-that-is-too-long\"":                        "f:6: port[0].exception: \"a-name-that-is-too-long\" is not the name",
		"exception = \"eth0\"":                                           "f:6: port[0].exception: \"eth0\" is the interface of port \"p\"",
		"exception = \"tap0\"\nexception_rate = 0":                       "f:7: port[0].exception_rate: 0 is out of range",
		"exception = \"tap0\"\nexception_addresses = [\"10.7.0.1/24\"]":  "f:7: port[0].exception_addresses[0]: 10.7.0.1 is fastpath's own",
		"exception = \"tap0\"\nexception_addresses = [\"224.0.0.1/24\"]": "f:7: port[0].exception_addresses[0]: 224.0.0.1/24 is not an address of a host",
		"exception = \"tap0\"\n" + strings.ReplaceAll(strings.ReplaceAll(port, "\"p\"", "\"q\""), "7.0", "8.0") + "exception = \"tap0\"": "f:12: port[1].exception: \"tap0\" is the device",
	} {
		if _, err := Parse("f", []byte(port+in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}
