{{- define "signoff.name" -}}
{{- printf "%s-%s" .Release.Name .process | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "signoff.labels" -}}
app.kubernetes.io/name: signoff
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .process }}
{{- end -}}

{{- define "signoff.metadata" -}}
name: {{ include "signoff.name" . }}
labels:
  {{- include "signoff.labels" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Annotations of a pod; those by which a scraper finds metrics, where `.metrics` says that it has any. */}}
{{- define "signoff.annotations" -}}
{{- $scraped := dict -}}
{{- if and .metrics .Values.metrics.annotations -}}
{{- $scraped = dict "prometheus.io/scrape" "true" "prometheus.io/port" "9464" "prometheus.io/path" "/metrics" -}}
{{- end -}}
{{- with merge (deepCopy .Values.podAnnotations) $scraped }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What of a pod is the same for every process. */}}
{{- define "signoff.pod" -}}
automountServiceAccountToken: false
{{- with .Values.serviceAccount }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  # Files of Secrets are root's, and read by this group.
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "signoff.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* What every process is told; `.secret` is the Secret of this one. */}}
{{- define "signoff.env" -}}
- name: SIGNOFF_PROFILE
  value: production
- name: SIGNOFF_STATE_DIR
  value: /var/lib/signoff/state
- name: SIGNOFF_STORE_URL
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: store-url
{{- end -}}

{{/* What the worker, the gateway and the codec server are told besides. */}}
{{- define "signoff.processEnv" -}}
{{- include "signoff.env" . }}
- name: SIGNOFF_MANIFEST
  value: {{ .Values.manifest | quote }}
{{- if .Values.peopleConfigMap }}
- name: SIGNOFF_PEOPLE
  value: /etc/signoff/people/people.yaml
{{- end }}
- name: SIGNOFF_SIGNING_KEYS
  value: /etc/signoff/keys/signing-keys.json
- name: SIGNOFF_PUBLIC_KEYS
  value: /etc/signoff/keys/public-keys.json
- name: SIGNOFF_ENCRYPTION_KEYS
  value: file:/etc/signoff/keys/encryption-keys.json
- name: SIGNOFF_LOG
  value: {{ .Values.log }}
- name: SIGNOFF_TASK_QUEUE
  value: {{ .Values.worker.taskQueue | quote }}
- name: SIGNOFF_PUBLIC_URL
  value: {{ .Values.publicUrl | quote }}
{{- with .Values.temporalUi }}
- name: SIGNOFF_TEMPORAL_UI
  value: {{ . | quote }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
- name: TEMPORAL_ADDRESS
  value: {{ .Values.temporal.address | quote }}
- name: TEMPORAL_NAMESPACE
  value: {{ .Values.temporal.namespace | quote }}
{{- with .Values.temporal.tls }}
{{- if .enabled }}
- name: TEMPORAL_TLS
  value: "true"
{{- with .serverName }}
- name: TEMPORAL_TLS_SERVER_NAME
  value: {{ . | quote }}
{{- end }}
{{- if .caSecret }}
- name: TEMPORAL_TLS_SERVER_CA_CERT_PATH
  value: /etc/signoff/temporal-ca/ca.crt
{{- end }}
{{- if .clientSecret }}
- name: TEMPORAL_TLS_CLIENT_CERT_PATH
  value: /etc/signoff/temporal-client/tls.crt
- name: TEMPORAL_TLS_CLIENT_KEY_PATH
  value: /etc/signoff/temporal-client/tls.key
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.temporal.apiKey.secret }}
- name: TEMPORAL_API_KEY
  valueFrom:
    secretKeyRef:
      name: {{ .Values.temporal.apiKey.secret }}
      key: {{ .Values.temporal.apiKey.key }}
{{- end }}
{{- end -}}

{{- define "signoff.mounts" -}}
- name: state
  mountPath: /var/lib/signoff
- name: tmp
  mountPath: /tmp
{{- end -}}

{{- define "signoff.volumes" -}}
- name: state
  emptyDir: {}
- name: tmp
  emptyDir: {}
{{- end -}}

{{- define "signoff.processMounts" -}}
{{- include "signoff.mounts" . }}
- name: keys
  mountPath: /etc/signoff/keys
  readOnly: true
{{- if .Values.peopleConfigMap }}
- name: people
  mountPath: /etc/signoff/people
  readOnly: true
{{- end }}
{{- if .Values.temporal.tls.caSecret }}
- name: temporal-ca
  mountPath: /etc/signoff/temporal-ca
  readOnly: true
{{- end }}
{{- if .Values.temporal.tls.clientSecret }}
- name: temporal-client
  mountPath: /etc/signoff/temporal-client
  readOnly: true
{{- end }}
{{- end -}}

{{/* Of its Secret each process has the files that are its own; `.keys` names them. */}}
{{- define "signoff.processVolumes" -}}
{{- include "signoff.volumes" . }}
- name: keys
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      {{- range .keys }}
      - key: {{ . }}
        path: {{ . }}
      {{- end }}
{{- if .Values.peopleConfigMap }}
- name: people
  configMap:
    name: {{ .Values.peopleConfigMap }}
    items:
      - key: people.yaml
        path: people.yaml
{{- end }}
{{- with .Values.temporal.tls.caSecret }}
- name: temporal-ca
  secret:
    secretName: {{ . }}
    items:
      - key: ca.crt
        path: ca.crt
{{- end }}
{{- with .Values.temporal.tls.clientSecret }}
- name: temporal-client
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{/* A request for a probe; the gateway answers to names that it knows, and a pod's address is none. */}}
{{- define "signoff.request" -}}
path: {{ .path }}
port: {{ .port }}
httpHeaders:
  - name: Host
    value: 127.0.0.1
{{- end -}}

{{- define "signoff.disruption" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "signoff.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "signoff.labels" . | nindent 6 }}
{{- end -}}
