package catalog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxKeyBytes is far above the size of any key.
const maxKeyBytes = 64 << 10

// HasKey says whether the deployment is called with a key. Otherwise it is called with an Entra ID token.
func (d *Deployment) HasKey() bool { return d.APIKeyEnv != "" || d.APIKeyFile != "" }

// Key reads the deployment's key from where the catalog says it is, every time: a key that was rotated is seen on the next call. Space
// around it is removed. Errors name the place, never the content.
func (d *Deployment) Key() (string, error) {
	switch {
	case d.APIKeyEnv != "":
		key := strings.TrimSpace(os.Getenv(d.APIKeyEnv))
		if err := checkKey(key); err != nil {
			return "", fmt.Errorf("read key of deployment %s: environment variable %s: %w", d.Name, d.APIKeyEnv, err)
		}
		return key, nil
	case d.APIKeyFile != "":
		key, err := readKey(d.APIKeyFile)
		if err != nil {
			return "", fmt.Errorf("read key of deployment %s: %w", d.Name, err)
		}
		return key, nil
	}
	return "", fmt.Errorf("read key of deployment %s: it has none and is called with Entra ID", d.Name)
}

func readKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKeyBytes))
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(data))
	if err := checkKey(key); err != nil {
		return "", fmt.Errorf("file %s: %w", path, err)
	}
	return key, nil
}

// checkKey refuses what cannot be a header value, before an HTTP library quotes it in an error.
func checkKey(key string) error {
	if key == "" {
		return errors.New("is empty or not set")
	}
	for _, r := range key {
		if r <= ' ' || r > '~' {
			return errors.New("holds a space, a line break or a character that no key has")
		}
	}
	return nil
}
