{{- define "goodput.name" -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- end -}}
{{- define "goodput.secret" -}}{{ .Values.server.existingSecret | default (printf "%s-server" (include "goodput.name" .)) }}{{- end -}}
{{- define "goodput.tag" -}}{{ .Values.image.tag | default .Chart.AppVersion }}{{- end -}}
{{- define "goodput.server.image" -}}{{ .Values.image.registry }}goodput-ingest:{{ include "goodput.tag" . }}{{- end -}}
{{- define "goodput.agent.image" -}}{{ .Values.image.registry }}goodput-agent:{{ include "goodput.tag" . }}{{- end -}}

{{- define "goodput.labels" -}}
app.kubernetes.io/name: goodput-monitor
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "goodput.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A pod of the server: (dict "root" $ "part" "web" "resources" …) */}}
{{- define "goodput.server.pod" -}}
{{- $root := .root -}}
automountServiceAccountToken: false
{{- include "goodput.pullSecrets" $root }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: { type: RuntimeDefault }
{{- with $root.Values.server.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.server.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .part }}
    image: {{ include "goodput.server.image" $root | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args: [{{ .part | quote }}]
    envFrom:
      - secretRef: { name: {{ include "goodput.secret" $root | quote }} }
    env:
      - { name: GOODPUT_EXPOSE, value: {{ $root.Values.expose | quote }} }
      - { name: GOODPUT_PUBLIC_URL, value: {{ include "goodput.url" $root | quote }} }
      - { name: GOODPUT_PROXIES, value: {{ $root.Values.server.proxies | quote }} }
      - { name: GOODPUT_WEB_WORKERS, value: {{ $root.Values.server.web.workers | quote }} }
      - { name: GOODPUT_FOLD_WORKERS, value: {{ $root.Values.server.worker.processes | quote }} }
{{- if and (eq .part "prepare") $root.Values.postgresql.enabled }}
      - { name: POSTGRES_ADMIN_USER, value: goodput } # makes the server's role, which is no superuser
      - name: POSTGRES_ADMIN_PASSWORD
        valueFrom: { secretKeyRef: { name: {{ include "goodput.name" $root }}-postgresql, key: POSTGRES_ADMIN_PASSWORD } }
{{- end }}
    {{- with .resources }}
    resources: {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: { drop: [ALL] }
    volumeMounts:
      - { name: tmp, mountPath: /tmp }
      - { name: var, mountPath: /var/lib/goodput }
{{- if eq .part "web" }}
    ports:
      - { name: http, containerPort: 8080 }
    startupProbe:
      exec: { command: [python, /app/deploy/docker/healthy.py] }
      periodSeconds: 5
      timeoutSeconds: 5
      failureThreshold: 60
    livenessProbe:
      exec: { command: [python, /app/deploy/docker/healthy.py] }
      periodSeconds: 20
      timeoutSeconds: 5
    readinessProbe:
      exec: { command: [python, /app/deploy/docker/healthy.py] }
      periodSeconds: 10
      timeoutSeconds: 5
{{- end }}
volumes:
  - { name: tmp, emptyDir: {} }
  - { name: var, emptyDir: {} }
{{- end -}}

{{/* The server answers to this name and to loopback only */}}
{{- define "goodput.url" -}}
{{- if .Values.publicUrl }}{{ .Values.publicUrl }}{{ else }}http://{{ include "goodput.name" . }}-web:{{ .Values.server.service.port }}{{ end }}
{{- end -}}
{{- define "goodput.endpoint" -}}
{{- if .Values.agent.endpoint }}{{ .Values.agent.endpoint }}{{ else if .Values.publicUrl }}{{ .Values.publicUrl }}/v1/batches{{ else }}http://{{ include "goodput.name" . }}-web:{{ .Values.server.service.port }}/v1/batches{{ end }}
{{- end -}}
{{- define "goodput.agent.tokenSecret" -}}{{ .Values.agent.tokenSecret | default (include "goodput.secret" .) }}{{- end -}}
{{- define "goodput.agent.tokenKey" -}}{{ if .Values.agent.tokenSecret }}token{{ else }}GOODPUT_AGENT_TOKEN{{ end }}{{- end -}}
