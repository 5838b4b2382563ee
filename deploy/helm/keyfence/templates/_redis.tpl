{{/* (list $ false): how Redis is reached from the same namespace, or (true) from others: the data of the ConfigMaps. */}}
{{- define "keyfence.redis-settings" -}}
{{- $root := first . -}}
{{- $name := printf "%s-redis" (include "keyfence.fullname" $root) -}}
{{- $domain := last . | ternary (printf ".%s" $root.Release.Namespace) "" -}}
{{- if and (ne $root.Values.redis.mode "external") (not $root.Values.controlPlane.enabled) }}
{{- fail "redis.mode must be external where controlPlane.enabled is false: this release has no Redis" }}
{{- end }}
{{- with $root.Values.redis }}
{{- $scheme := .tls.enabled | ternary "rediss" "redis" }}
{{- if eq .mode "single" }}
REDIS_URL: {{ $scheme }}://{{ $name }}{{ $domain }}:6379
{{- else if eq .mode "sentinel" }}
{{- $sentinels := list }}
{{- range $i := until 3 }}
{{- $sentinels = printf "%s://%s-%d.%s%s:26379" $scheme $name $i $name $domain | append $sentinels }}
{{- end }}
REDIS_MODE: sentinel
REDIS_URL: {{ $sentinels | join "," }}
REDIS_REPLICAS: '2'
{{- else }}
REDIS_MODE: {{ .external.mode }}
{{- if .external.urlSecret.name }}
REDIS_URL_FILE: /run/secrets/keyfence/redis-url
{{- else }}
REDIS_URL: {{ required "redis.external.url or redis.external.urlSecret.name is needed where redis.mode is external" .external.url }}
{{- end }}
{{- end }}
{{- if eq (include "keyfence.sentinel-password" $root) "true" }}
REDIS_SENTINEL_PASSWORD_FILE: /run/secrets/keyfence/sentinel-client-password
{{- end }}
{{- if .tls.enabled }}
REDIS_TLS_CA_FILE: /run/secrets/keyfence/ca.crt
{{- end }}
{{- range $setting, $value := .settings }}
{{ $setting }}: {{ $value | toString | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "keyfence.sentinel-password" -}}
{{- with .Values.redis -}}
{{ or (eq .mode "sentinel") (and (eq .mode "external") .external.sentinelPassword) }}
{{- end -}}
{{- end -}}

{{- define "keyfence.password-command" -}}
{{- with .Values.redis }}{{ and (eq .mode "external") .external.passwordCommand | default "" }}{{ end -}}
{{- end -}}

{{/* (list $ "redis-password"): where a process has its password from. */}}
{{- define "keyfence.redis-password" -}}
{{- with include "keyfence.password-command" (first .) -}}
- { name: REDIS_PASSWORD_COMMAND, value: {{ quote . }} }
{{- else -}}
- { name: REDIS_PASSWORD_FILE, value: /run/secrets/keyfence/{{ last . }} }
{{- end }}
{{- end -}}

{{/* What of the Secrets is a file for whoever talks to Redis, its own password apart. */}}
{{- define "keyfence.redis-secrets" -}}
{{- with .Values.redis }}
{{- if and (eq .mode "external") .external.urlSecret.name }}
- secret:
    name: {{ .external.urlSecret.name }}
    items: [{ key: {{ .external.urlSecret.key }}, path: redis-url }]
{{- end }}
- secret:
    name: {{ .tls.secretName }}
    optional: {{ not .tls.enabled }}
    items: [{ key: ca.crt, path: ca.crt }]
{{- end }}
{{- end -}}

{{/* deploy/redis, as the ConfigMap that both containers mount. */}}
{{- define "keyfence.redis-files" -}}
{{- range $file, $_ := .Files.Glob "files/redis/*.{conf,acl,sh}" }}
{{ base $file }}: {{ $.Files.Get $file | toJson }}
{{- end }}
{{- end -}}

{{/* Which of the group a pod is, and who is its primary at first. */}}
{{- define "keyfence.redis-group" -}}
{{- $service := printf "%s-redis" (include "keyfence.fullname" .) -}}
- { name: POD, valueFrom: { fieldRef: { fieldPath: metadata.name } } }
- { name: NAMESPACE, valueFrom: { fieldRef: { fieldPath: metadata.namespace } } }
{{- $hosts := list }}
{{- range $i := until 3 }}
{{- $hosts = printf "%s-%d.%s.$(NAMESPACE).svc" $service $i $service | append $hosts }}
{{- end }}
# Good in every cluster, whatever its domain is: the search list of each pod ends in it.
- { name: GROUP_SELF, value: $(POD).{{ $service }}.$(NAMESPACE).svc }
- { name: GROUP_PRIMARY, value: {{ first $hosts }} }
- { name: GROUP_HOSTS, value: {{ $hosts | join " " }} }
{{- end -}}
