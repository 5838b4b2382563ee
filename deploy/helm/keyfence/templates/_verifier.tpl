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
image: {{ include "keyfence.image" . }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
restartPolicy: Always
command: [node, verifier/main.js]
envFrom:
  - configMapRef: { name: {{ .Values.verifier.configMapName }} }
env:
  # Whoever can ask here can try keys: this pod alone. Probes and scrapes come from outside of it.
  - { name: HOST, value: 127.0.0.1 }
  - { name: ADMIN_HOST, value: 0.0.0.0 }
  # Empty where the pod has no such annotation: then API_IDS of the ConfigMap.
  - name: POD_API_IDS
    valueFrom: { fieldRef: { fieldPath: "metadata.annotations['keyfence/api-ids']" } }
  - { name: REDIS_USERNAME, value: {{ .Values.verifier.redisUsername }} }
  - { name: REDIS_PASSWORD_FILE, value: /run/secrets/keyfence/redis-password }
  {{- include "keyfence.env" .Values.verifier.settings | indent 2 }}
ports:
  - { name: keyfence-admin, containerPort: 9301 }
# The application starts when this one can answer. While Redis is away that waits; no restart would help.
startupProbe:
  httpGet: { path: /readyz, port: keyfence-admin }
  periodSeconds: 1
  failureThreshold: 600
{{ include "keyfence.verifier.probes" . }}
resources:
  {{- toYaml .Values.verifier.resources | nindent 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  {{- include "keyfence.confined" . | nindent 2 }}
  seccompProfile: { type: RuntimeDefault }
volumeMounts:
  - { name: keyfence-verifier, mountPath: /run/secrets/keyfence, readOnly: true }
{{- end -}}

{{/* Once ready it stays so: without Redis, known keys go on, and others get 503, which says more than a pod that left. */}}
{{- define "keyfence.verifier.probes" -}}
readinessProbe:
  httpGet: { path: /readyz, port: keyfence-admin }
  periodSeconds: 5
  timeoutSeconds: 2
livenessProbe:
  httpGet: { path: /livez, port: keyfence-admin }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}

{{- define "keyfence.sidecar.volumes" -}}
- name: keyfence-verifier
  secret:
    secretName: {{ .Values.verifier.secretName }}
    # 0444: the pod's fsGroup is the application's business, and no other container mounts this.
    defaultMode: 292
{{- end -}}
