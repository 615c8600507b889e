#!lua flags=allow-oom
-- No ARGV. Nothing is claimed from here on; who waits at the bell has nothing to look for. Answers 1 if that is news.
local news = 1 - call('EXISTS', paused)
call('SET', paused, '1')
call('DEL', bell)
return news
