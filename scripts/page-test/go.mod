module carryover/scripts/page-test

go 1.26.0
