package plugins

import "slices"

// Features that a host may offer beyond the records themselves, and that a module may need (Info.Needs). A host refuses a module that needs
// what it does not know.
const (
	FeaturePacing = "pacing" // a flow is sent at the rate of its last Decision
	FeatureECN    = "ecn"    // a Sample counts what arrived marked (RFC 3168, RFC 9768)
	FeatureLost   = "lost"   // each lost range has a Sample of its own, with what was in flight when it was sent
	FeatureReplay = "replay" // who takes over a flow is told its segment log
)

// Features are all that this version offers.
func Features() []string { return []string{FeaturePacing, FeatureECN, FeatureLost, FeatureReplay} }

// Lacking returns what of needs this version does not offer.
func Lacking(needs []string) (lacking []string) {
	for _, n := range needs {
		if !slices.Contains(Features(), n) {
			lacking = append(lacking, n)
		}
	}
	return lacking
}
