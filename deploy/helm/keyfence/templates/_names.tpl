{{/* Alerts know the jobs by the end of their names, `keyfence-control-plane` and `keyfence-verifier`. */}}
{{- define "keyfence.fullname" -}}
{{- with .Values.fullnameOverride -}}
{{ . }}
{{- else -}}
{{ hasSuffix "keyfence" .Release.Name | ternary .Release.Name (printf "%s-keyfence" (.Release.Name | trunc 30 | trimSuffix "-")) }}
{{- end -}}
{{- end -}}

{{/* (dict "root" $ "component" "redis"): the labels by which its pods are found, which may never change. */}}
{{- define "keyfence.selector" -}}
app.kubernetes.io/name: keyfence
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* (dict "root" $ "component" "redis"): those of the object itself. */}}
{{- define "keyfence.labels" -}}
{{ include "keyfence.selector" . }}
{{ include "keyfence.chart-labels" .root }}
{{- end -}}

{{- define "keyfence.chart-labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "keyfence.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ with .digest }}@{{ . }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}
