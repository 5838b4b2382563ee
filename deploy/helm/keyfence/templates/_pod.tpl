{{/* (list $ .Values.controlPlane): where its pods may run, and who fetches their image. */}}
{{- define "keyfence.scheduling" -}}
{{- with (first .).Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $of := last . }}
{{- with $of.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
nodeSelector:
  {{- $of.nodeSelector | default (dict "kubernetes.io/os" "linux") | toYaml | nindent 2 }}
{{- with $of.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* (list $ "files" $text .Values.redis): a pod starts again where what it reads, $text, has changed. */}}
{{- define "keyfence.annotations" -}}
checksum/{{ index . 1 }}: {{ index . 2 | sha256sum }}
{{- if (first .).Values.serviceMesh }}
# Redis has passwords and TLS of its own, and a proxy between would hide from it, and from us, that a connection is dead.
traffic.sidecar.istio.io/excludeInboundPorts: '6379,26379'
traffic.sidecar.istio.io/excludeOutboundPorts: '6379,26379'
config.linkerd.io/skip-inbound-ports: '6379,26379'
config.linkerd.io/skip-outbound-ports: '6379,26379'
{{- end }}
{{- with (last .).podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (list $ $context): a security context, without the user where the cluster chooses it. */}}
{{- define "keyfence.user" -}}
{{ (first .).Values.anyUser | ternary (omit (last .) "runAsUser" "runAsGroup" "fsGroup") (last .) | toYaml }}
{{- end -}}

{{- define "keyfence.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{- define "keyfence.image-of" -}}
image: {{ include "keyfence.image" . }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}

{{/*
(list .settings 10000 5 30): time that a pod gets to stop, in seconds: its preStop hook, DRAIN_MS, STOP_WAIT_MS (by default
10000), and 10 s for requests in flight; at least 30.
*/}}
{{- define "keyfence.grace" -}}
{{- $settings := first . | default dict -}}
{{- $drainMs := $settings.DRAIN_MS | default 1000 | int -}}
{{- $waitMs := index . 1 -}}
{{- if and $waitMs $settings.STOP_WAIT_MS }}{{ $waitMs = $settings.STOP_WAIT_MS | int }}{{ end -}}
{{- max (last . | int) (add (index . 2) (div (add $drainMs $waitMs 999) 1000) 10) -}}
{{- end -}}

{{/* A map of settings as `env`; numbers and flags become text. */}}
{{- define "keyfence.env" -}}
{{- range $name, $value := . }}
- { name: {{ $name }}, value: {{ $value | toString | quote }} }
{{- end }}
{{- end -}}

{{/* An endpoint `admin` or `keyfence-admin` of the process. */}}
{{- define "keyfence.probes" -}}
readinessProbe:
  httpGet: { path: /readyz, port: {{ . }} }
  periodSeconds: 5
  timeoutSeconds: 2
livenessProbe:
  httpGet: { path: /livez, port: {{ . }} }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}

{{/* (list $ "redis" 2): pods of one component are spread over nodes and, with 2, over zones. */}}
{{- define "keyfence.spread" -}}
{{- $part := . -}}
{{- range slice (list "kubernetes.io/hostname" "topology.kubernetes.io/zone") 0 (last .) }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "keyfence.selector" $part | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end -}}
