{{- /* Names, labels and the parts that master and workers share. */}}

{{- define "spark-cluster.pipeline" -}}
{{- .Values.pipeline | default .Release.Name -}}
{{- end }}

{{- /* Where the cluster's objects go; the release itself may be kept elsewhere. */}}
{{- define "spark-cluster.namespace" -}}
{{- .Values.namespace | default .Release.Namespace -}}
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
{{- printf "%s-0.%s.%s.svc.%s" $name $name (include "spark-cluster.namespace" .) .Values.clusterDomain -}}
{{- end }}

{{- /* Resolves to all workers. */}}
{{- define "spark-cluster.worker-host" -}}
{{- printf "%s-worker.%s.svc.%s" (include "spark-cluster.fullname" .) (include "spark-cluster.namespace" .) .Values.clusterDomain -}}
{{- end }}

{{- /* What selects pods; a StatefulSet cannot change it. Takes (dict "root" $ "component" "master"). */}}
{{- define "spark-cluster.selector" -}}
{{- $pipeline := include "spark-cluster.pipeline" .root -}}
{{- dict
  "app.kubernetes.io/name" "spark-cluster"
  "app.kubernetes.io/instance" $pipeline
  "streaming.fencepost.dev/pipeline" $pipeline
  "streaming.fencepost.dev/generation" (toString .root.Values.generation)
  "streaming.fencepost.dev/component" .component
| include "spark-cluster.json" -}}
{{- end }}

{{- define "spark-cluster.pod-labels" -}}
{{- $own := include "spark-cluster.selector" . | fromJson -}}
{{- $own = merge $own (dict "app.kubernetes.io/managed-by" .root.Release.Service "app.kubernetes.io/part-of" "fencepost") -}}
{{- merge $own .root.Values.labels | include "spark-cluster.json" -}}
{{- end }}

{{- /* metadata of an object. Takes (dict "root" $ "component" "master" "name" "master"). */}}
{{- define "spark-cluster.metadata" -}}
{{- $labels := include "spark-cluster.pod-labels" . | fromJson -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_") -}}
{{- $metadata := dict
  "name" (printf "%s-%s" (include "spark-cluster.fullname" .root) .name)
  "namespace" (include "spark-cluster.namespace" .root)
  "labels" $labels
-}}
{{- with .root.Values.annotations }}{{ $_ := set $metadata "annotations" . }}{{ end -}}
{{- with .root.Values.ownerReference }}
{{- $_ := set $metadata "ownerReferences" (list (merge (dict "controller" true "blockOwnerDeletion" true) .)) -}}
{{- end -}}
{{- include "spark-cluster.json" $metadata -}}
{{- end }}

{{- /*
A value as JSON on one line. Text of a tenant enters a template in this way only, never by toYaml and nindent: a block scalar
ends at a line break that nindent does not know, such as U+2028. JSON of Go escapes U+2028 and U+2029. What YAML takes for a
line break (U+0085), or refuses, is escaped here.
*/}}
{{- define "spark-cluster.json" -}}
{{- $text := toJson . -}}
{{- range $code := concat (untilStep 127 160 1) (list 65279 65534 65535) -}}
{{- $text = $text | replace (printf "%c" (int $code)) (printf "\\u%04x" (int $code)) -}}
{{- end -}}
{{- $text -}}
{{- end }}

{{- /* A file that the operator writes; every line of it is the operator's. Takes (dict "root" $ "name" "spark-defaults.conf"). */}}
{{- define "spark-cluster.file" -}}
{{- get .root.Values.files .name | required (printf "files: %q is missing; the operator writes it" .name) -}}
{{- end }}

{{- define "spark-cluster.files" -}}
{{- $files := dict -}}
{{- range list "spark-defaults.conf" "log4j2.properties" -}}
{{- $_ := set $files . (include "spark-cluster.file" (dict "root" $ "name" .)) -}}
{{- end -}}
{{- if .Values.dataService.port -}}
{{- $_ := set $files "data-service.json" (include "spark-cluster.file" (dict "root" $ "name" "data-service.json")) -}}
{{- end -}}
{{- include "spark-cluster.json" $files -}}
{{- end }}

{{- /* The secret of this generation: made once, kept by later upgrades. */}}
{{- define "spark-cluster.auth-secret" -}}
{{- $there := lookup "v1" "Secret" (include "spark-cluster.namespace" .) (printf "%s-auth" (include "spark-cluster.fullname" .)) -}}
{{- dig "data" "secret" "" ($there | default dict) | default (randAlphaNum 48 | b64enc) -}}
{{- end }}

{{- /* Annotations of a pod: the author's, and the chart's, which take precedence. Takes (dict "root" $ "own" (dict …)). */}}
{{- define "spark-cluster.pod-annotations" -}}
{{- merge .own (.root.Values.podAnnotations | default dict) | include "spark-cluster.json" -}}
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
{{- with .Values.serviceAccountName }}
serviceAccountName: {{ include "spark-cluster.json" . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ include "spark-cluster.json" . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ include "spark-cluster.json" . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ include "spark-cluster.json" . }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ include "spark-cluster.json" . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ include "spark-cluster.json" . }}
{{- end }}
{{- end }}

{{- /* Fields of a container that master and workers share. */}}
{{- define "spark-cluster.container" -}}
image: {{ include "spark-cluster.json" .Values.image }}
{{- with .Values.imagePullPolicy }}
imagePullPolicy: {{ include "spark-cluster.json" . }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- /*
Becomes a program when a TCP port answers. Arguments: host, port, program. Not in a container of its own, which takes a second
to start.
*/}}
{{- define "spark-cluster.await" -}}
import os, signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_DFL)
while True:
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2).close()
        break
    except OSError:
        time.sleep(0.1)
os.execv(sys.argv[3], sys.argv[3:])
{{- end }}

{{- /*
Becomes the master once no worker runs an executor of one before it. Arguments: folder of the recovery files, host and port of the
workers' web pages, program. A master without the files of the one before it knows no application, and workers that find it end
the executors of those, in the middle of a batch. A worker that refuses connections has none; one that does not answer, or a DNS
that does not, is asked again for 20 s.
*/}}
{{- define "spark-cluster.succeed" -}}
import concurrent.futures, http.client, json, os, signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_DFL)
recovery, host, port, *program = sys.argv[1:]
NONE, SOME, UNKNOWN = "none", "some", "unknown"
def executors(address):
    try:
        connection = http.client.HTTPConnection(address, int(port), timeout=2)
        connection.request("GET", "/json/")
        return SOME if json.loads(connection.getresponse().read(1 << 24))["executors"] else NONE
    except (ConnectionRefusedError, ValueError, LookupError, TypeError):
        return NONE
    except (OSError, http.client.HTTPException):
        return UNKNOWN
def found(pool):
    try:
        workers = {each[4][0] for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except socket.gaierror as error:
        return {NONE if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA) else UNKNOWN}
    return set(pool.map(executors, workers))
patience, next_report = time.monotonic() + 20, 0
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    while not os.listdir(recovery):
        states = found(pool)
        if SOME not in states and (UNKNOWN not in states or time.monotonic() > patience):
            break
        if SOME in states and time.monotonic() > next_report:
            print(f"workers of {host} still run executors of the master before this one; waiting for their end", flush=True)
            next_report = time.monotonic() + 30
        time.sleep(1)
os.execv(program[0], program)
{{- end }}

{{- /* Environment that master and workers share. */}}
{{- define "spark-cluster.env" -}}
- name: _SPARK_AUTH_SECRET
  valueFrom:
    secretKeyRef:
      name: {{ printf "%s-auth" (include "spark-cluster.fullname" .) | include "spark-cluster.json" }}
      key: secret
- name: SPARK_CONF_DIR
  value: /etc/fencepost/spark
- name: SPARK_LOCAL_DIRS
  value: /tmp
{{- end }}

{{- /*
Probes of a daemon's web port, which opens after the RPC port; Spark logs each connection to the latter. Quick to see a start,
slow to give up on a busy JVM. Takes the seconds that a start may take.
*/}}
{{- define "spark-cluster.probes" -}}
startupProbe:
  tcpSocket:
    port: ui
  periodSeconds: 1
  failureThreshold: {{ . }}
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
