package continuation

import "carryover/upstream/body"

// Kind tells answers apart by what shows in the request and at the end of the answer. The set is small and closed: 80 for each tenant.
type Kind struct {
	API       body.API
	FollowUp  bool // the request has an assistant message
	Tools     bool // the request offers tools
	ToolCalls bool // the answer ended with calls of tools
	Unread    bool // the request offers tools, and the engine has not told whether the answer ended with calls
	Explicit  bool // the client named the conversation; otherwise its key comes from the content
}
