{{/* (list $ 9300): Prometheus may scrape this port. */}}
{{- define "keyfence.from-monitoring" -}}
- from:
    - namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: {{ (first .).Values.networkPolicy.monitoringNamespace }} } }
  ports:
    - { port: {{ last . }}, protocol: TCP }
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

{{/* (list $ "redis" $name): as many pods as there are, but for one. */}}
{{- define "keyfence.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "keyfence.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "keyfence.selector" . | nindent 6 }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "keyfence.metadata" . | nindent 2 }}
automountServiceAccountToken: false
{{- end -}}
