{{/*
(dict "type" "Object.spec.volumes" "value" …): a value as CEL writes it. Objects carry their type, but for maps whose names
are free.
*/}}
{{- define "keyfence.cel" -}}
{{- $type := .type -}}
{{- if kindIs "map" .value -}}
{{- $parts := list -}}
{{- $free := has (splitList "." $type | last) (list "requests" "limits") -}}
{{- range $name, $value := .value -}}
{{- $inner := include "keyfence.cel" (dict "type" (printf "%s.%s" $type $name) "value" $value) -}}
{{- $parts = printf "%s: %s" ($free | ternary ($name | quote) $name) $inner | append $parts -}}
{{- end -}}
{{ $free | ternary "" $type }}{ {{- $parts | join ", " -}} }
{{- else if kindIs "slice" .value -}}
{{- $parts := list -}}
{{- range .value -}}{{- $parts = include "keyfence.cel" (dict "type" $type "value" .) | append $parts -}}{{- end -}}
[{{ $parts | join ", " }}]
{{- else if kindIs "float64" .value -}}
{{ int64 .value }}
{{- else -}}
{{ toJson .value }}
{{- end -}}
{{- end -}}
