{{- define "fencepost.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 53 | trimSuffix "-" -}}
{{- end }}

{{- define "fencepost.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "fencepost.labels" -}}
{{ include "fencepost.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: fencepost
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "fencepost.service-account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "fencepost.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{- define "fencepost.image" -}}
{{- with .Values.image -}}
{{- /* Values of an older chart, as `helm upgrade --reuse-values` brings them, have no registry. */ -}}
{{- $repository := ternary (printf "%s/%s" .registry .repository) .repository (ne (.registry | default "") "") -}}
{{- if .digest -}}
{{- printf "%s@%s" $repository .digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (.tag | default $.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Values of an older chart, as `helm upgrade --reuse-values` brings them, have no replicas; 0 is a choice. */}}
{{- define "fencepost.replicas" -}}
{{- if kindIs "invalid" .Values.replicas -}}2{{- else -}}{{ int .Values.replicas }}{{- end -}}
{{- end }}

{{- /* Values of an older chart, as `helm upgrade --reuse-values` brings them, have no shards. */}}
{{- define "fencepost.shards" -}}
{{- $shards := int (.Values.shards | default 1) -}}
{{- if and (gt (int .Values.maxConcurrentRestarts) 0) (lt (int .Values.maxConcurrentRestarts) $shards) -}}
{{- fail "maxConcurrentRestarts: is divided among the shards; set it to the number of shards or more, or to 0 for no limit" -}}
{{- end -}}
{{- $shards -}}
{{- end }}

{{- /* The Leases of all shards that there may ever be: an upgrade that lowers their number ends the Leases of the others. */}}
{{- define "fencepost.leases" -}}
{{- $fullname := include "fencepost.fullname" . -}}
{{- $leases := list $fullname -}}
{{- range untilStep 1 32 1 -}}{{- $leases = append $leases (printf "%s-shard-%d" $fullname .) -}}{{- end -}}
{{- toJson $leases -}}
{{- end }}

{{- /* A lost node costs the operator seconds instead of Kubernetes' five minutes, unless the values say otherwise. */}}
{{- define "fencepost.tolerations" -}}
{{- $tolerations := .Values.tolerations | default list -}}
{{- $named := list -}}
{{- range $tolerations -}}{{- $named = append $named (.key | default "") -}}{{- end -}}
{{- /* A kubelet that restarts is not ready for some seconds; a node that is unreachable has been silent for 40 s already. */ -}}
{{- range $taint, $seconds := dict "node.kubernetes.io/not-ready" 10 "node.kubernetes.io/unreachable" 0 -}}
{{- if not (or (has $taint $named) (has "" $named)) -}}
{{- $own := dict "key" $taint "operator" "Exists" "effect" "NoExecute" "tolerationSeconds" $seconds -}}
{{- $tolerations = append $tolerations $own -}}
{{- end -}}
{{- end -}}
{{- toJson $tolerations -}}
{{- end }}

{{- /* The replicas of one revision on different nodes, without those that a rollout is about to stop, unless the values say otherwise. */}}
{{- define "fencepost.spread" -}}
{{- $labels := include "fencepost.selector" . | fromYaml -}}
{{- $nodes := dict "topologyKey" "kubernetes.io/hostname" "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway" -}}
{{- $own := merge $nodes (dict "labelSelector" (dict "matchLabels" $labels) "matchLabelKeys" (list "pod-template-hash")) -}}
{{- .Values.topologySpreadConstraints | default (list $own) | toJson -}}
{{- end }}

{{- /* What the operator does in the namespaces it watches. */}}
{{- define "fencepost.namespaced-rules" -}}
# The pipelines themselves.
- apiGroups: [streaming.fencepost.dev]
  resources: [streamingpipelines]
  verbs: [get, list, watch, patch]
- apiGroups: [streaming.fencepost.dev]
  resources: [streamingpipelines/status]
  verbs: [update]
# Rewinds of pipelines.
- apiGroups: [streaming.fencepost.dev]
  resources: [pipelinerewinds]
  verbs: [list, watch, patch]
- apiGroups: [streaming.fencepost.dev]
  resources: [pipelinerewinds/status]
  verbs: [update]
# Trials of new code.
- apiGroups: [streaming.fencepost.dev]
  resources: [pipelinetrials]
  verbs: [get, list, watch, create, delete]
- apiGroups: [streaming.fencepost.dev]
  resources: [pipelinetrials/status]
  verbs: [update]
# Owner references that block deletion, where the cluster guards them (OwnerReferencesPermissionEnforcement).
- apiGroups: [streaming.fencepost.dev]
  resources: [streamingpipelines/finalizers]
  verbs: [update]
# Helm installs the spark-cluster chart, and keeps its releases in Secrets. Secrets and ConfigMaps that a spec names are read.
- apiGroups: [""]
  resources: [configmaps, persistentvolumeclaims, secrets, services]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, update, patch, delete]
# Specs that were in effect.
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [get, list, create, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, update, patch, delete]
# Runs, and how they ended.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch, create, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
# The Events that kubectl describe shows (a repeated Event increases a count), and why a pod does not start.
- apiGroups: [""]
  resources: [events]
  verbs: [get, list, create, patch]
{{- end }}

{{- /* The Secret of the metrics' certificate. Values of an older chart, as `helm upgrade --reuse-values` brings them, have none. */}}
{{- define "fencepost.metrics-tls" -}}
{{- $secret := dig "tls" "secretName" "" .Values.metrics -}}
{{- if and .Values.metrics.authentication (not $secret) -}}
{{- fail "metrics.authentication: needs metrics.tls.secretName, for a token is not sent in the clear" -}}
{{- end -}}
{{- $secret -}}
{{- end }}

{{- /* Whether an object of the Prometheus operator's is wanted, from (root, value, kind): "auto" is where the cluster knows the kind. */}}
{{- define "fencepost.wanted" -}}
{{- $root := index . 0 -}}
{{- $value := index . 1 | toString -}}
{{- if or (eq $value "true") (and (eq $value "auto") ($root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 2)))) -}}
true
{{- end -}}
{{- end }}

{{- /* Job under which Prometheus scrapes the operator; empty when it is not known that one does. */}}
{{- define "fencepost.metricsJob" -}}
{{- if .Values.metrics.prometheusRule.job -}}
{{- .Values.metrics.prometheusRule.job -}}
{{- else if include "fencepost.wanted" (list . .Values.metrics.serviceMonitor.enabled "ServiceMonitor") -}}
{{- printf "%s-metrics" (include "fencepost.fullname" .) -}}
{{- end -}}
{{- end }}

{{- /* Prometheus' job of the pods of pipelines, empty where this chart has no scrape for them. */}}
{{- define "fencepost.podsJob" -}}
{{- if include "fencepost.wanted" (list . (dig "podMonitor" "enabled" false .Values.metrics) "PodMonitor") -}}
{{- printf "%s/%s-pipelines" .Release.Namespace (include "fencepost.fullname" .) -}}
{{- end -}}
{{- end }}

{{- /* Matchers of a job, as all that a selector has and as what it begins with; nothing where the job is empty. */}}
{{- define "fencepost.ofJob" -}}
{{- $matcher := ternary (printf "job=%q" .) "" (ne . "") -}}
{{- dict "only" (ternary (printf "{%s}" $matcher) "" (ne . "")) "and" (ternary (printf "%s," $matcher) "" (ne . "")) | toYaml -}}
{{- end }}

{{- /* Seconds of one of Prometheus' durations with a single unit. */}}
{{- define "fencepost.seconds" -}}
{{- $factor := dict "s" 1 "m" 60 "h" 3600 "d" 86400 | dig (regexFind "[smhd]$" .) 1 -}}
{{- mul (regexFind "^[0-9]+" . | int64) $factor -}}
{{- end }}

{{- /* Why no receiver of pages.secretName gets pages. Without a cluster, as in `helm template`, `lookup` finds nothing: this is not known. */}}
{{- define "fencepost.pages-wrong" -}}
{{- $name := (.Values.pages | default dict).secretName -}}
{{- if $name -}}
{{- $secret := lookup "v1" "Secret" .Release.Namespace $name -}}
{{- if $secret -}}
{{- $receivers := "" -}}
{{- range list "apprise" "pagerduty" "alertmanager" -}}
{{- $receivers = print $receivers (get ($secret.data | default dict) . | b64dec | trim) -}}
{{- end -}}
{{- if not $receivers -}}Secret {{ $name }} of namespace {{ .Release.Namespace }} holds no receiver.{{- end -}}
{{- else if lookup "v1" "Secret" .Release.Namespace "" -}}
Secret {{ $name }} of namespace {{ .Release.Namespace }} does not exist.
{{- end -}}
{{- end -}}
{{- end }}
