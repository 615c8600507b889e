#!lua flags=no-writes
-- No ARGV. Answers how many are ready, delayed, in flight, dead.
return {call('ZCARD', ready), call('ZCARD', delayed), call('ZCARD', leases), call('ZCARD', dead)}
