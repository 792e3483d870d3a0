package supervisor

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"3proxyd/config"
	"3proxyd/ipc"
)

// plan says what a reload would do now, as far as can be told without opening
// or changing anything that stays.
func (d *daemon) plan() (*ipc.ReloadPlan, error) {
	if err := d.isUpgrading(); err != nil {
		return nil, err
	}
	d.change.Lock()
	defer d.change.Unlock()
	if d.isDraining() {
		return nil, errDraining
	}
	cfg, diags := d.options.Load()
	if cfg == nil {
		return nil, &Refused{"the configuration has errors", diags}
	}
	limits, err := d.wouldRefuse(cfg)
	if err != nil {
		return nil, err
	}
	old := d.inForce()
	plan := comparePlan(old.cfg, cfg, old.limits, limits)
	plan.Warnings = append(diags, d.fixedChanges(cfg)...)
	plan.Warnings = append(plan.Warnings, old.keptSockets(cfg)...)
	return plan, nil
}

// keptSockets warns of options that a reload cannot change on the sockets it
// keeps, and of Unix sockets that it makes again.
func (n *snapshot) keptSockets(cfg *config.Config) []config.Diagnostic {
	have := map[string]*listener{}
	for _, l := range n.listeners {
		have[l.key] = l
	}
	var warnings []config.Diagnostic
	for i := range cfg.Services {
		s := &cfg.Services[i]
		l := have[s.Listen.Key()]
		if l != nil && l.lostFile() {
			warnings = append(warnings, serviceWarning(s, lostFileText))
		} else if l != nil {
			for _, text := range l.fixed(s) {
				warnings = append(warnings, serviceWarning(s, text))
			}
		}
	}
	return warnings
}

// wouldRefuse finds what build would refuse.
func (d *daemon) wouldRefuse(cfg *config.Config) (Limits, error) {
	cpus, err := d.placeWorkers(cfg)
	if err != nil {
		return Limits{}, err
	}
	limits := measure(d.machine, cfg, len(cpus), false)
	if limits.Fatal != "" {
		return limits, &Refused{Reason: limits.Fatal}
	}
	if failed := d.probeListeners(cfg); len(failed) > 0 {
		return limits, &Refused{"cannot listen", failed}
	}
	if failed := checkLogs(cfg, config.Error); len(failed) > 0 {
		return limits, &Refused{"cannot open a log", failed}
	}
	return limits, nil
}

// probeListeners binds what a reload would open, and closes it again: no
// client can connect to a socket that does not listen. The file of a Unix
// socket would be seen, so only its directory is looked at.
func (d *daemon) probeListeners(cfg *config.Config) []config.Diagnostic {
	have := map[string]*listener{}
	for _, l := range d.inForce().listeners {
		have[l.key] = l
	}
	var failed []config.Diagnostic
	for i := range cfg.Services {
		s := &cfg.Services[i]
		switch {
		case s.Listen.Unix != "" && d.isControl(s.Listen.Unix):
			failed = append(failed, controlConflict(s))
			continue
		case have[s.Listen.Key()] != nil:
			continue
		}
		inherited, err := d.inherited.has(s, cfg.Services)
		if err != nil {
			failed = append(failed, serviceError(s, err.Error()))
			continue
		}
		ours := overlaps(have, s.Listen)
		if inherited {
			continue
		}
		if err := probe(s, ours); err != nil {
			failed = append(failed, serviceError(s, d.listenReason(s.Listen, err, ours)))
		}
	}
	return failed
}

// comparePlan lists what differs between the configuration in force and the
// next.
func comparePlan(old, next *config.Config, was, is Limits) *ipc.ReloadPlan {
	p := &ipc.ReloadPlan{Changed: !reflect.DeepEqual(old, next)}
	p.Settings = compareSettings(old, next, "services", "acls", "users", "source", "files")
	p.Settings = append(p.Settings, compareSettings(was.Status, is.Status)...)
	p.Users = compareUsers(old.Users, next.Users)

	before := map[string]int{}
	for i, s := range old.Services {
		before[s.ID] = i
	}
	for i, s := range next.Services {
		j, kept := before[s.ID]
		delete(before, s.ID)
		if !kept {
			p.Added = append(p.Added, s.ID)
			continue
		}
		change := compareService(old, next, j, i)
		if old.Services[j].MaxConn == s.MaxConn && was.MaxConn[j] != is.MaxConn[i] {
			change.Settings = append(change.Settings, compareSettings(
				map[string]int{"maxconn (in effect)": was.MaxConn[j]}, map[string]int{"maxconn (in effect)": is.MaxConn[i]})...)
		}
		if reflect.DeepEqual(change, ipc.ServiceChange{ID: s.ID}) {
			p.Kept = append(p.Kept, s.ID)
		} else {
			p.Services = append(p.Services, change)
		}
	}
	p.Removed = slices.Sorted(maps.Keys(before))
	return p
}

func compareService(old, next *config.Config, j, i int) ipc.ServiceChange {
	a, b := &old.Services[j], &next.Services[i]
	c := ipc.ServiceChange{ID: b.ID, Settings: compareSettings(a, b, "id", "pos", "acl")}
	was, is := ruleLines(old, a), ruleLines(next, b)
	c.RulesAdded, c.RulesRemoved = without(is, was), without(was, is)
	c.RulesReordered = len(c.RulesAdded)+len(c.RulesRemoved) == 0 && !slices.Equal(was, is)
	return c
}

func ruleLines(cfg *config.Config, s *config.Service) []string {
	if s.ACL < 0 {
		return nil
	}
	lines := make([]string, len(cfg.ACLs[s.ACL]))
	for i, r := range cfg.ACLs[s.ACL] {
		lines[i] = r.String()
	}
	return lines
}

// without returns the lines of list that are not among others, each of which
// stands for one.
func without(list, others []string) []string {
	count := map[string]int{}
	for _, line := range others {
		count[line]++
	}
	var rest []string
	for _, line := range list {
		if count[line]--; count[line] < 0 {
			rest = append(rest, line)
		}
	}
	return rest
}

// compareSettings compares two values by their JSON, but for the fields in
// skip.
func compareSettings(before, after any, skip ...string) []ipc.Change {
	a, b := flatten(before, skip), flatten(after, skip)
	names := maps.Clone(a)
	maps.Copy(names, b)
	var changes []ipc.Change
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if a[name] != b[name] {
			changes = append(changes, ipc.Change{Setting: name, Before: a[name], After: b[name]})
		}
	}
	return changes
}

// flatten maps the fields of a value, those of objects in it as "outer.inner",
// to their JSON.
func flatten(v any, skip []string) map[string]string {
	flat := map[string]string{}
	data, err := json.Marshal(v)
	if err != nil {
		return flat
	}
	flattenInto(flat, "", data, skip)
	return flat
}

func flattenInto(flat map[string]string, path string, data json.RawMessage, skip []string) {
	var fields map[string]json.RawMessage
	if len(data) == 0 || data[0] != '{' || json.Unmarshal(data, &fields) != nil {
		flat[path] = string(data)
		return
	}
	for name, value := range fields {
		if slices.Contains(skip, name) {
			continue
		}
		inner := name
		if path != "" {
			inner = path + "." + name
		}
		flattenInto(flat, inner, value, nil)
	}
}

// compareUsers names users; no password is part of a plan.
func compareUsers(before, after []config.User) ipc.UserChanges {
	was := map[string]config.User{}
	for _, u := range before {
		was[u.Name] = u
	}
	var c ipc.UserChanges
	for _, u := range after {
		old, ok := was[u.Name]
		delete(was, u.Name)
		switch {
		case !ok:
			c.Added = append(c.Added, u.Name)
		case old != u:
			c.Changed = append(c.Changed, u.Name)
		}
	}
	c.Removed = slices.Sorted(maps.Keys(was))
	return c
}
