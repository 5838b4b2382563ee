{{/* Alerts know the jobs by the end of their names, `keyfence-control-plane` and `keyfence-verifier`. */}}
{{- define "keyfence.fullname" -}}
{{- with .Values.fullnameOverride -}}
{{ . }}
{{- else -}}
{{ hasSuffix "keyfence" .Release.Name | ternary .Release.Name (printf "%s-keyfence" (.Release.Name | trunc 30 | trimSuffix "-")) }}
{{- end -}}
{{- end -}}

{{/* (list $ "redis" …): the labels by which its pods are found, which may never change. */}}
{{- define "keyfence.selector" -}}
app.kubernetes.io/name: keyfence
app.kubernetes.io/instance: {{ (first .).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* (list $ "redis" $name): name, namespace and labels of an object; those of no component have ''. */}}
{{- define "keyfence.metadata" -}}
{{- $ := first . -}}
name: {{ index . 2 }}
namespace: {{ $.Release.Namespace }}
labels:
  {{- if index . 1 }}
  {{- include "keyfence.selector" . | nindent 2 }}
  {{- end }}
  {{- include "keyfence.chart-labels" $ | nindent 2 }}
{{- end -}}

{{- define "keyfence.chart-labels" -}}
app.kubernetes.io/part-of: keyfence
app.kubernetes.io/version: {{ .Chart.AppVersion }}
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
