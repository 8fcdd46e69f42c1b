package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/memsession"
)

// Operations are numbered requests of a session: the service needs no record for each.
func ExampleSession() {
	server := serviceWithSessions()
	defer server.Close()
	ctx := context.Background()

	s, err := client.NewSession(server.URL+"/sessions", nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	sender := &http.Client{Transport: s}
	for range 2 {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/payments", strings.NewReader("12.50"))
		if err != nil {
			fmt.Println(err)
			return
		}
		res, err := sender.Do(req)
		if errors.Is(err, everonce.ErrOutcomeUnknown) {
			fmt.Println("find out whether it was paid, and do not send it again")
			return
		}
		if err != nil {
			fmt.Println("not paid:", err)
			return
		}
		res.Body.Close()
		fmt.Println(res.Status)
	}
	fmt.Println(s.Close(ctx))
	// Output:
	// 201 Created
	// 201 Created
	// <nil>
}

// serviceWithSessions is a service whose sessions are in memory.
func serviceWithSessions() *httptest.Server {
	host, err := memsession.New(struct{}{}, session.Config{Lease: time.Minute}, nil)
	if err != nil {
		panic(err)
	}
	pay, err := httponce.HandleSession(host, httponce.Unscoped(), func(w http.ResponseWriter, _ *http.Request, _ struct{}) error {
		w.WriteHeader(http.StatusCreated)
		return nil
	}, nil)
	if err != nil {
		panic(err)
	}
	sessions, err := httponce.Sessions(host, httponce.Unscoped(), nil)
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", pay)
	mux.Handle("/sessions", sessions)
	return httptest.NewServer(mux)
}
