{{- define "keyfence.from-monitoring" -}}
- from:
    - namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: {{ .root.Values.networkPolicy.monitoringNamespace }} } }
  ports:
    - { port: {{ .port }}, protocol: TCP }
{{- end -}}

{{- define "keyfence.to-dns" -}}
- ports:
    - { port: 53, protocol: UDP }
    - { port: 53, protocol: TCP }
  to:
    - namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: {{ .Values.networkPolicy.dnsNamespace }} } }
    # NodeLocal DNSCache is no pod: it answers on the node itself.
    - ipBlock: { cidr: 169.254.0.0/16 }
{{- end -}}

{{/* Redis and its Sentinels, wherever they are: a managed one is outside of the cluster. */}}
{{- define "keyfence.to-redis" -}}
- ports:
    {{- range .Values.networkPolicy.redisPorts }}
    - { port: {{ . }}, protocol: TCP }
    {{- end }}
{{- end -}}
