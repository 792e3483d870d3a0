// Package systemd speaks with the service manager that started the process: it
// takes over inherited descriptors (sd_listen_fds(3)), tells the manager what
// the service does (sd_notify(3)), keeps descriptors in its store
// (systemd.service(5), FileDescriptorStoreMax=) and writes structured messages
// to the journal. Without a manager, that is without its variables in the
// environment, everything is a no-op.
//
// The directory holds the unit files as well.
package systemd
