package proxy

import (
	"bytes"
	"errors"
	"net"
	"strconv"
)

// guardedConn is a client's connection over HTTP/1, whose heads are read strictly. net/http forgives what two
// servers in a row may read differently, and so take different bytes for the next request: a length beside
// chunks, a repeated length, a folded line, a line that ends without CR. Here they are an error, which net/http
// answers with 400 before it closes the connection.
//
// Behind the head of a request in chunks, or of one that asks for an upgrade, it cannot tell where the next head
// begins: such a request is the last one on its connection (see lastOnConn).
type guardedConn struct {
	net.Conn
	heads headScanner
	err   error
}

// Read reads from the client. Like any connection's, it is called by one goroutine at a time.
func (c *guardedConn) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.Conn.Read(p)
	good, bad := c.heads.scan(p[:n])
	if bad != nil {
		c.err = bad
		if good == 0 {
			return 0, bad
		}
		return good, nil
	}
	return n, err
}

// The reasons to reject a head (RFC 9112).
var (
	errBareLF  = errors.New("a line of the head ends without CR")                            // 2.2
	errBareCR  = errors.New("a CR within a line of the head")                                // 2.2
	errFolded  = errors.New("a folded line in the head")                                     // 5.2
	errLengths = errors.New("Content-Length beside Transfer-Encoding, or one of them twice") // 6.3
	errLength  = errors.New("Content-Length is no number")                                   // 6.3
	errOld     = errors.New("Transfer-Encoding in a version of HTTP that does not know it")  // 6.1
	errPreface = errors.New("the preface of HTTP/2, which is not spoken on this connection") // RFC 9113, 3.4
)

// headScanner follows the requests of a connection, byte by byte.
type headScanner struct {
	state    scanState
	line     []byte // the line so far; long ones are cut
	cr       bool   // the last byte was a CR
	begun    bool   // the request's first line was read
	old      bool   // HTTP/1.0
	lengths  int
	length   int64
	encoding int
	upgrade  bool
	body     int64 // bytes left of the body
}

type scanState uint8

const (
	scanHead scanState = iota
	scanBody
	scanRest // all that comes
)

// maxLine is as much of a line as has to be seen.
const maxLine = 64

// scan looks at what was read. It returns how many bytes are in front of what is wrong.
func (s *headScanner) scan(p []byte) (good int, err error) {
	for i := 0; i < len(p); {
		switch s.state {
		case scanRest:
			return len(p), nil
		case scanBody:
			n := min(s.body, int64(len(p)-i))
			s.body -= n
			i += int(n)
			if s.body == 0 {
				s.state = scanHead
			}
		case scanHead:
			if err := s.next(p[i]); err != nil {
				return i, err
			}
			i++
		}
	}
	return len(p), nil
}

// next takes a byte of a head.
func (s *headScanner) next(c byte) error {
	switch {
	case c == '\n' && !s.cr:
		return errBareLF
	case c == '\n':
		s.cr = false
		return s.endLine()
	case s.cr:
		return errBareCR
	case c == '\r':
		s.cr = true
		return nil
	case len(s.line) == 0 && s.begun && (c == ' ' || c == '\t'):
		return errFolded
	}
	if len(s.line) < maxLine || !s.begun {
		s.line = append(s.line, c)
	}
	if !s.begun && len(s.line) > maxLine { // of the first line its end counts
		s.line = append(s.line[:0], s.line[len(s.line)-maxLine/2:]...)
	}
	return nil
}

func (s *headScanner) endLine() error {
	line := s.line
	s.line = s.line[:0]
	switch {
	case !s.begun:
		if len(line) > 0 { // blank lines before a request are net/http's business
			s.begun, s.old = true, !bytes.HasSuffix(line, []byte(" HTTP/1.1"))
		}
		if bytes.HasSuffix(line, []byte(" HTTP/2.0")) { // of which net/http makes a request, and reads on
			return errPreface
		}
		return nil
	case len(line) == 0:
		return s.endHead()
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	switch {
	case bytes.EqualFold(name, []byte("Content-Length")):
		n, err := strconv.ParseUint(string(bytes.Trim(value, " \t")), 10, 63)
		if err != nil || len(line) == maxLine { // cut: a number that begins with so many zeros is another one to net/http
			return errLength
		}
		s.lengths++
		s.length = int64(n)
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		s.encoding++
	case bytes.EqualFold(name, []byte("Upgrade")):
		s.upgrade = true
	}
	if s.lengths+s.encoding > 1 {
		return errLengths
	}
	return nil
}

func (s *headScanner) endHead() error {
	was := *s
	*s = headScanner{line: was.line}
	switch {
	case was.encoding > 0 && was.old:
		return errOld
	case was.encoding > 0 || was.upgrade:
		s.state = scanRest
	case was.length > 0:
		s.state, s.body = scanBody, was.length
	}
	return nil
}
