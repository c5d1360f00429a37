-- Argo CD's health of a StreamingPipeline, from its status. Suspended is Healthy: Argo CD's own state Suspended keeps a sync from
-- ending, so that later waves and later commits would not be applied.
local os = require("os") -- a part of it that Argo CD preloads
local LATE = 600 -- seconds of reconciling one generation, until it is Degraded, as a Deployment is after progressDeadlineSeconds
local health = {status = "Progressing", message = "Waiting for the operator"}
local conditions = {}
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    conditions[condition.type] = condition
  end
end

local paused, stalled, ready = conditions.Paused, conditions.Stalled, conditions.Ready
if paused ~= nil and paused.status == "True" then
  -- The operator changes nothing until the annotation is removed; a sync cannot wait for that.
  return {status = "Healthy", message = "Paused: " .. (paused.message or "")}
end
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return health
end
if stalled ~= nil and stalled.status == "True" then
  return {status = "Degraded", message = stalled.message}
end
if ready ~= nil then
  health.message = ready.message
  -- It is absent during planned steps: the queue for a restart, a change, a rewind.
  local since = obj.status.notReadySince
  -- A commit that corrects a spec has its own time.
  if since ~= nil and obj.status.observedSince ~= nil and obj.status.observedSince > since then
    since = obj.status.observedSince
  end
  if ready.status == "True" then
    health.status = "Healthy"
  elseif since ~= nil and since < os.date("!%Y-%m-%dT%H:%M:%SZ", os.time() - LATE) then
    health.status = "Degraded"
  end
end
return health
