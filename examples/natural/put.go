package natural

import "context"

// Profile is a resource whose ID its client chose.
type Profile struct {
	ID, Name, Mail string
}

// PutProfile creates or replaces the profile: PUT /profiles/{id}.
func PutProfile(ctx context.Context, db DB, p Profile) error {
	_, err := db.ExecContext(ctx,
		`INSERT INTO profile (id, name, mail) VALUES (?, ?, ?)
		 ON CONFLICT (id) DO UPDATE SET name = excluded.name, mail = excluded.mail`,
		p.ID, p.Name, p.Mail)
	return err
}

// DeleteProfile removes a profile. That it is gone already is success: it is what was asked for.
func DeleteProfile(ctx context.Context, db DB, id string) error {
	_, err := db.ExecContext(ctx, `DELETE FROM profile WHERE id = ?`, id)
	return err
}
