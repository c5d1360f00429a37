-- Argo CD's health of a PipelineRewind or a PipelineTrial, from its status: Healthy when it is complete, Degraded when it cannot complete without a user.
local health = {status = "Progressing", message = "Waiting for the operator"}
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return health
end
for _, condition in ipairs(obj.status.conditions or {}) do
  if condition.type == "Stalled" and condition.status == "True" then
    return {status = "Degraded", message = condition.message}
  end
  if condition.type == "Ready" then
    health.message = condition.message
    if condition.status == "True" then
      health.status = "Healthy"
    end
  end
end
return health
