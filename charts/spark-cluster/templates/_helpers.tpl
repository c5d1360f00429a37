{{- /* Names, labels and the parts that master and workers share. */}}

{{- define "spark-cluster.pipeline" -}}
{{- .Values.pipeline | default .Release.Name -}}
{{- end }}

{{- define "spark-cluster.fullname" -}}
{{- $pipeline := include "spark-cluster.pipeline" . -}}
{{- $name := printf "%s-g%d" $pipeline (int .Values.generation) -}}
{{- /* A StatefulSet's pods carry <name>-<10 characters> as a label, and a label holds 63. */ -}}
{{- if gt (len (printf "%s-worker" $name)) 52 -}}
{{- fail (printf "pipeline: %q leaves no room for its cluster's names at generation %d; use a name of at most 38 characters" $pipeline (int .Values.generation)) -}}
{{- end -}}
{{- $name -}}
{{- end }}

{{- define "spark-cluster.master-host" -}}
{{- $name := printf "%s-master" (include "spark-cluster.fullname" .) -}}
{{- printf "%s-0.%s.%s.svc.%s" $name $name .Release.Namespace .Values.clusterDomain -}}
{{- end }}

{{- /* What selects pods; a StatefulSet cannot change it. Takes (dict "root" $ "component" "master"). */}}
{{- define "spark-cluster.selector" -}}
app.kubernetes.io/name: spark-cluster
app.kubernetes.io/instance: {{ include "spark-cluster.pipeline" .root | quote }}
streaming.fencepost.dev/pipeline: {{ include "spark-cluster.pipeline" .root | quote }}
streaming.fencepost.dev/generation: {{ .root.Values.generation | quote }}
streaming.fencepost.dev/component: {{ .component }}
{{- end }}

{{- define "spark-cluster.pod-labels" -}}
{{- $own := include "spark-cluster.selector" . | fromYaml -}}
{{- $own = merge $own (dict "app.kubernetes.io/managed-by" .root.Release.Service "app.kubernetes.io/part-of" "fencepost") -}}
{{- merge $own .root.Values.labels | toYaml -}}
{{- end }}

{{- /* metadata of an object. Takes (dict "root" $ "component" "master" "name" "master"). */}}
{{- define "spark-cluster.metadata" -}}
name: {{ include "spark-cluster.fullname" .root }}-{{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "spark-cluster.pod-labels" . | nindent 2 }}
  helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.ownerReference }}
ownerReferences:
  - apiVersion: {{ .apiVersion | quote }}
    kind: {{ .kind | quote }}
    name: {{ .name | quote }}
    uid: {{ .uid | quote }}
    controller: true
    blockOwnerDeletion: true
{{- end }}
{{- end }}

{{- /*
spark-defaults.conf: defaults, then the author's settings, then what Fencepost's safety rests on; in a properties file the
last word wins.
*/}}
{{- define "spark-cluster.spark-defaults" -}}
spark.network.timeout 60s
spark.executor.heartbeatInterval 5s
spark.executor.heartbeat.maxFailures 3
spark.worker.timeout 60
spark.worker.cleanup.enabled true
spark.worker.cleanup.interval 600
spark.worker.cleanup.appDataTtl 3600
spark.executor.logs.rolling.strategy size
spark.executor.logs.rolling.maxSize 10485760
spark.executor.logs.rolling.maxRetainedFiles 3
{{- range $key, $value := .Values.sparkConf }}
{{ $key }} {{ $value | replace "\\" "\\\\" }}
{{- end }}
spark.authenticate true
spark.network.crypto.enabled true
spark.network.crypto.cipher AES/GCM/NoPadding
spark.network.crypto.saslFallback false
spark.master.rest.enabled false
spark.ui.killEnabled false
spark.master.ui.decommission.allow.mode DENY
spark.deploy.recoveryMode FILESYSTEM
spark.deploy.recoveryDirectory /var/lib/fencepost/recovery
{{- end }}

{{- define "spark-cluster.log4j2" -}}
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %p %c{1}: %m%n%ex
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
{{- end }}

{{- /* The secret of this generation: made once, kept by later upgrades. */}}
{{- define "spark-cluster.auth-secret" -}}
{{- $there := lookup "v1" "Secret" .Release.Namespace (printf "%s-auth" (include "spark-cluster.fullname" .)) -}}
{{- dig "data" "secret" "" ($there | default dict) | default (randAlphaNum 48 | b64enc) -}}
{{- end }}

{{- /* Fields of a pod's spec that master and workers share. */}}
{{- define "spark-cluster.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: 10
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 0
  fsGroup: 0
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{- /* Fields of a container that master and workers share. */}}
{{- define "spark-cluster.container" -}}
image: {{ .Values.image | quote }}
{{- with .Values.imagePullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- /* Ends when a TCP port answers. Arguments: host, port. */}}
{{- define "spark-cluster.await" -}}
import socket, sys, time
while True:
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2).close()
        break
    except OSError:
        time.sleep(0.2)
{{- end }}

{{- /* Environment that master and workers share. */}}
{{- define "spark-cluster.env" -}}
- name: _SPARK_AUTH_SECRET
  valueFrom:
    secretKeyRef:
      name: {{ include "spark-cluster.fullname" . }}-auth
      key: secret
- name: SPARK_CONF_DIR
  value: /etc/fencepost/spark
- name: SPARK_LOCAL_DIRS
  value: /tmp
{{- end }}

{{- /*
Probes of a daemon's web port, which opens after the RPC port; Spark logs each connection to the latter. Quick to see a start,
slow to give up on a busy JVM.
*/}}
{{- define "spark-cluster.probes" -}}
startupProbe:
  tcpSocket:
    port: ui
  periodSeconds: 1
  failureThreshold: 180
readinessProbe:
  tcpSocket:
    port: ui
  periodSeconds: 5
  timeoutSeconds: 3
livenessProbe:
  tcpSocket:
    port: ui
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}
