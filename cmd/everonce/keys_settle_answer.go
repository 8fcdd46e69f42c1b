package main

import (
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/inspect"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
)

// answerFlags are the flags that describe a request's answer.
type answerFlags struct {
	status         string
	headers        []string
	body, bodyFile string
}

func (f *answerFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.status, "status", "", "with --done, for an HTTP request: the status that duplicates get")
	flags.StringArrayVar(&f.headers, "header", nil, "with --status: a header of the answer, like 'Location: /payments/7'; may be repeated")
	flags.StringVar(&f.body, "body", "", "with --status: the body of the answer")
	flags.StringVar(&f.bodyFile, "body-file", "", "with --status: the file with the body of the answer")
}

// read returns the answer that the flags describe; nil without --status.
func (f *answerFlags) read(cmd *cobra.Command) (*httponce.Answer, error) {
	given := cmd.Flags().Changed
	switch {
	case !given("status") && (given("header") || given("body") || given("body-file")):
		return nil, usagef("--header, --body and --body-file go with --status")
	case !given("status"):
		return nil, nil //nolint:nilnil // no answer is given
	case given("body") && given("body-file"):
		return nil, usagef("give either --body or --body-file")
	}
	status, err := strconv.Atoi(f.status)
	if err != nil || status == 0 { // the library reads 0 as 200
		return nil, usagef("--status is %q, must be from 200 to 599", f.status)
	}
	a := &httponce.Answer{Status: status, Header: http.Header{}, Body: []byte(f.body)}
	a.Elided = !given("body") && !given("body-file") && status != http.StatusNoContent && status != http.StatusNotModified
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, usagef("--header has no colon, must be like 'Location: /payments/7'")
		}
		a.Header.Add(name, strings.Trim(value, " \t"))
	}
	if given("body-file") {
		if a.Body, err = os.ReadFile(f.bodyFile); err != nil {
			return nil, usagef("--body-file: %w", err)
		}
	}
	return a, nil
}

// asAnswer replaces the result of an HTTP request by its answer. It rejects an answer that could not be sent, because a
// settlement cannot be undone.
func asAnswer(rec *driver.Record, s *everonce.Settlement, answer *httponce.Answer) error {
	isHTTP := inspect.IsRequest(rec)
	switch {
	case !isHTTP && answer != nil:
		return usagef("the operation is not an HTTP request, so it has no --status: give its --result")
	case !isHTTP || s.Step != "" || s.Verdict == everonce.SettleNotDone || s.Failure != nil:
		return nil
	case s.Encoded != nil:
		answer = new(httponce.Answer)
		if err := answer.UnmarshalJSON(s.Encoded); err != nil {
			return usagef(`the operation is an HTTP request, so --result must be its answer, like {"status":201,"body":"paid"}: %v`, err)
		}
	case answer == nil:
		return usagef("the operation is an HTTP request: give the --status of the answer that its duplicates get, and its --body; " +
			"without a --body they get the status alone, marked as elided")
	}
	of, err := answer.Settlement()
	if err != nil {
		return usagef("%w", err)
	}
	s.Encoded, s.Codec, s.Summary, s.Failure = of.Encoded, of.Codec, of.Summary, of.Failure
	return nil
}
