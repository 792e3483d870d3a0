// Package acl decides who may do what: access lists compiled for lookup, users
// and their secrets, and the policy of a service that joins both. It does no
// I/O and takes no locks: a Policy is immutable and may be used by any thread.
package acl
