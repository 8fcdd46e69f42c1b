package client

import (
	"net/url"
	"testing"
)

func TestTransportOrigins(t *testing.T) {
	tr, err := NewTransport(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		from, to string
		want     bool
	}{
		{"https://pay.example/a", "https://pay.example/b?c", true},
		{"https://pay.example/", "https://PAY.example:443/", true},
		{"http://pay.example:80/", "http://pay.example/", true},
		{"http://pay.example/", "https://pay.example/", true},
		{"http://pay.example:8080/", "https://pay.example/", false},
		{"http://pay.example/", "https://pay.example:8443/", false},
		{"https://pay.example/", "http://pay.example/", false},
		{"https://pay.example:8443/", "http://pay.example:8443/", false}, // in the clear
		{"http://pay.example:8080/", "https://pay.example:8080/", false},
		{"http://pay.example/", "http://pay.example:443/", false},
		{"https://pay.example/", "https://pay.example:8443/", false},
		{"https://pay.example/", "https://eu.pay.example/", false},
		{"https://eu.pay.example/", "https://pay.example/", false},
		{"https://pay.example/", "https://pay.example.evil/", false},
		{"https://pay.example/", "https://pay.example@evil/", false},
		{"https://[::1]/", "https://[::1]:443/", true},
		{"https://[::1]/", "https://[::2]/", false},
	} {
		from, err := url.Parse(tc.from)
		if err != nil {
			t.Fatal(err)
		}
		to, err := url.Parse(tc.to)
		if err != nil {
			t.Fatal(err)
		}
		if got := tr.mayFollow(from, to); got != tc.want {
			t.Errorf("from %s to %s: %v, want %v", tc.from, tc.to, got, tc.want)
		}
	}
}
