#!lua flags=allow-oom
-- No ARGV. Claims go on, at once where something is ready. Answers 1 if the queue was paused.
local news = call('DEL', paused)
if news == 1 and call('ZCARD', ready) > 0 then
  ring()
end
return news
