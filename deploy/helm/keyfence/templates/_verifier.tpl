{{/*
For charts that have this one as a dependency: a verifier in their own pods, with the settings of this chart's values.
  initContainers:
    {{- include "keyfence.sidecar" .Subcharts.keyfence | nindent 8 }}
  volumes:
    {{- include "keyfence.sidecar.volumes" .Subcharts.keyfence | nindent 8 }}
*/}}
{{- define "keyfence.sidecar" -}}
- {{ include "keyfence.sidecar.container" . | nindent 2 | trim }}
{{- end -}}

{{- define "keyfence.sidecar.container" -}}
name: keyfence-verifier
{{ include "keyfence.image-of" . }}
restartPolicy: Always
{{ include "keyfence.verifier.command" . }}
env:
  # Whoever can ask here can try keys: this pod alone. Probes and scrapes come from outside of it.
  - { name: HOST, value: 127.0.0.1 }
  # Empty where the pod has no such annotation: then API_IDS of the ConfigMap.
  - name: POD_API_IDS
    valueFrom: { fieldRef: { fieldPath: "metadata.annotations['keyfence/api-ids']" } }
  {{- include "keyfence.verifier.env" . | nindent 2 }}
ports:
  - { name: keyfence-admin, containerPort: 9301 }
# The application starts when this one can answer. While Redis is away that waits; no restart would help.
startupProbe:
  httpGet: { path: /readyz, port: keyfence-admin }
  periodSeconds: 1
  failureThreshold: 600
{{ include "keyfence.verifier.health" . }}
securityContext:
  {{- include "keyfence.user" (list . (dict "runAsNonRoot" true "runAsUser" 10001 "runAsGroup" 10001)) | nindent 2 }}
  {{- include "keyfence.confined" . | nindent 2 }}
  seccompProfile: { type: RuntimeDefault }
volumeMounts:
  - { name: keyfence-verifier, mountPath: /run/secrets/keyfence, readOnly: true }
{{- end -}}

{{- define "keyfence.sidecar.volumes" -}}
- name: keyfence-verifier
  secret:
    secretName: {{ .Values.verifier.secretName }}
    {{- if include "keyfence.password-command" . }}
    optional: true
    {{- end }}
    # 0444: the pod's fsGroup is the application's business, and no other container mounts this.
    defaultMode: 292
{{- end -}}

{{/* Common to the verifiers in pods, on nodes and for gateways. */}}
{{- define "keyfence.verifier.command" -}}
command: [node, verifier/main.js]
envFrom:
  - configMapRef: { name: {{ .Values.verifier.configMapName }} }
{{- end -}}

{{- define "keyfence.verifier.env" -}}
- { name: ADMIN_HOST, value: '{{ .Values.listenAddress }}' }
- { name: REDIS_USERNAME, value: {{ .Values.verifier.redisUsername }} }
{{ include "keyfence.redis-password" (list . "redis-password") }}
{{- include "keyfence.env" .Values.verifier.settings }}
{{- end -}}

{{/* Once ready it stays so: without Redis, known keys go on, and others get 503, which says more than a pod that left. */}}
{{- define "keyfence.verifier.health" -}}
{{ include "keyfence.probes" "keyfence-admin" }}
resources:
  {{- toYaml .Values.verifier.resources | nindent 2 }}
{{- end -}}

{{/* Nothing waits for those that are alone in their pod. */}}
{{- define "keyfence.verifier.start" -}}
startupProbe:
  httpGet: { path: /livez, port: keyfence-admin }
  periodSeconds: 1
  failureThreshold: 60
{{- end -}}
