// Nothing: with it the headers are compiled that all tests read (attune_test_headers).
