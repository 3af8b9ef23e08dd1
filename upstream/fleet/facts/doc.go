// Package facts has what is known of one incarnation of an engine: one type for each fact, with its own lock and the
// few methods that learn it and tell it. [All] has the facts of an incarnation; what outlasts it belongs to the
// [Machine] of its engine. Package fleet keeps them, the steps of turns teach and ask them.
//
// It promises that
//
//   - of an incarnation whose id is not known nothing is learnt that would need a comparison (all.go);
//   - what is found out by asking an engine does not depend on one client's departure, credential or model, and of each
//     question at most one is under way (question.go, probe.go, render.go);
//   - a render endpoint that an incarnation lacks is asked for once, and one that the fleet's render server lacks every
//     30 seconds (render.go);
//   - the memory of a prompt's ids serves another prompt only after the turn that asked for them has given it back
//     (promptbuffer.go);
//   - a common shape of requests is known before a turn has it, by lessons that are bounded in number and size, pin
//     nothing, and go to an engine only while it is idle (lessons.go, lesson.go; fleet/teach.go says when);
//   - what requests teach is bounded (question.go, package account), and takes the place of no lesson (parity.go);
//   - several samples of a metric, as of several engines or processes, must agree, or the incarnation and the block size
//     are not known (metrics.go);
//   - a text that breaks off, or has more than its bound, is an error and tells nothing; values that make no sense are
//     zero, and sums don't overflow (metrics.go, use.go, modellist.go);
//   - nothing waits for an engine while it holds a lock.
package facts
