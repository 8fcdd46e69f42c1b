package mysqlstore

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce/driver"
)

// ParseURL returns the configuration of the client for a URL such as mysql://user:password@host:3306/database, with the
// parameters of its data source names: ?tls=true&readTimeout=10s. Open it by [mysql.NewConnector] and
// [database/sql.OpenDB]. The errors contain no password.
func ParseURL(text string) (*mysql.Config, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%w: the URL of a database is like mysql://user:password@host:3306/database", driver.ErrInvalidArgument)
	}
	if u.Scheme != "mysql" && u.Scheme != "mariadb" {
		return nil, fmt.Errorf("%w: %q is no scheme of MySQL or MariaDB; use mysql://", driver.ErrInvalidArgument, u.Scheme)
	}
	config := mysql.NewConfig()
	if u.RawQuery != "" {
		if config, err = mysql.ParseDSN("/?" + u.RawQuery); err != nil {
			return nil, fmt.Errorf("%w: the parameters of the URL: %w", driver.ErrInvalidArgument, err)
		}
	}
	config.Net, config.Addr = "tcp", u.Host
	if u.Port() == "" {
		config.Addr += ":3306"
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.DBName = strings.Trim(u.Path, "/")
	return config, nil
}
