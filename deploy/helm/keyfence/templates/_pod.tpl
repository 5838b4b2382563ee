{{/* (dict "root" $ "of" .Values.controlPlane): where its pods may run, and who fetches their image. */}}
{{- define "keyfence.scheduling" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .of.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "keyfence.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{/* A map of settings as `env`; numbers and flags become text. */}}
{{- define "keyfence.env" -}}
{{- range $name, $value := . }}
- { name: {{ $name }}, value: {{ $value | toString | quote }} }
{{- end }}
{{- end -}}

{{/* The start of a pod again where what it reads has changed. */}}
{{- define "keyfence.checksums" -}}
{{- range $name, $text := . }}
checksum/{{ $name }}: {{ $text | sha256sum }}
{{- end }}
{{- end -}}
