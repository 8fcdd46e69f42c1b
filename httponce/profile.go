package httponce

import "fmt"

// Profile is the family of clients that an API serves: it decides which answers are kept, and the form of problems.
type Profile uint8

const (
	// ProfileDefault keeps what [DefaultSave] says, and sends problems as RFC 9457 has them.
	ProfileDefault Profile = iota
	// ProfileStripe is for the SDKs of Stripe, and for those that Stainless generates. Once an operation has begun, its
	// answer is final, even a failure of the server: 408 and 5xx are saved. Each problem also has the member "error" in
	// Stripe's form (type, code, message), without which stripe-node reports a refusal as a success, and the headers
	// Stripe-Should-Retry and X-Should-Retry where a retry is known to help, or not to. The handler's own answer gets them
	// too if its outcome is unknown under the policy Refuse: otherwise the SDK's retry would hide it behind a 409.
	ProfileStripe
)

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

// save returns a new copy of the endings that p stands for.
func (p Profile) save() Save {
	s := DefaultSave()
	if p == ProfileStripe {
		s["5xx"], s["408"] = Saved, Saved
	}
	return s
}
