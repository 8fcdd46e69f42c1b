package wire

import "fmt"

// Profile is the family of clients that an API serves.
type Profile uint8

// The profiles, which package httponce describes.
const (
	ProfileDefault Profile = iota
	ProfileStripe
)

// Valid reports whether p is one of the profiles.
func (p Profile) Valid() bool { return p <= ProfileStripe }

// String returns the profile's name, such as "stripe".
func (p Profile) String() string {
	switch p {
	case ProfileDefault:
		return "default"
	case ProfileStripe:
		return "stripe"
	}
	return fmt.Sprintf("Profile(%d)", uint8(p))
}
