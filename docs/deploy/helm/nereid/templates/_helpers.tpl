{{- define "nereid.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "nereid.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 54 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "nereid.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 54 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "nereid.selector" -}}
app.kubernetes.io/name: {{ include "nereid.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "nereid.labels" -}}
{{ include "nereid.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "nereid.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "nereid.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "nereid.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* What cannot work is refused here, where it can be said why. */}}
{{- define "nereid.check" -}}
{{- if and .Values.models.claim (ne .Values.kind "StatefulSet") -}}
{{- fail "models.claim is a volume for each replica: it needs kind: StatefulSet" -}}
{{- end -}}
{{- if and .Values.models.claim .Values.models.volume -}}
{{- fail "models.claim and models.volume are both mounted at models.mountPath: give one of them" -}}
{{- end -}}
{{- if and (contains "://" (join " " .Values.models.repositories)) (not .Values.models.cache.enabled) -}}
{{- fail "models.repositories has a store: models.cache.enabled=true gives what is downloaded a volume" -}}
{{- end -}}
{{- $cache := .Values.models.cache -}}
{{- if and (or $cache.volume $cache.claim) (not $cache.enabled) -}}
{{- fail "models.cache has a volume: it needs models.cache.enabled: true" -}}
{{- end -}}
{{- if and $cache.claim (ne .Values.kind "StatefulSet") -}}
{{- fail "models.cache.claim is a volume for each replica: it needs kind: StatefulSet; a Deployment takes models.cache.volume" -}}
{{- end -}}
{{- with ($cache.volume).hostPath -}}
{{- if ne (default "" .type) "Directory" -}}
{{- fail "models.cache.volume.hostPath needs type: Directory: Kubernetes makes a missing directory for root, and the server could not write there" -}}
{{- end -}}
{{- end -}}
{{- if and $cache.claim $cache.volume -}}
{{- fail "models.cache.claim and models.cache.volume are both mounted at models.cache.mountPath: give one of them" -}}
{{- end -}}
{{- if and .Values.inferencePool.enabled .Values.tls.secret -}}
{{- fail "inferencePool sends requests without TLS to the pods: it needs tls.secret to be empty" -}}
{{- end -}}
{{- if and .Values.tls.mutual (not .Values.tls.secret) -}}
{{- fail "tls.mutual needs tls.secret" -}}
{{- end -}}
{{- if and .Values.server.loadModels (ne .Values.server.modelControlMode "explicit") -}}
{{- fail "server.loadModels needs server.modelControlMode: explicit" -}}
{{- end -}}
{{- if ge (int .Values.server.exitGraceSecs) (int .Values.server.exitTimeoutSecs) -}}
{{- fail "server.exitGraceSecs is a part of server.exitTimeoutSecs: it has to be less" -}}
{{- end -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas is above autoscaling.maxReplicas" -}}
{{- end -}}
{{- if and (eq .Values.autoscaling.kind "keda") (eq .Values.autoscaling.metric "avg_time_queue_us") -}}
{{- fail "autoscaling.metric avg_time_queue_us is made by the adapter: it needs autoscaling.kind: hpa" -}}
{{- end -}}
{{- if and (eq .Values.autoscaling.kind "hpa") (lt (int .Values.autoscaling.minReplicas) 1) -}}
{{- fail "autoscaling.minReplicas 0 needs autoscaling.kind: keda" -}}
{{- end -}}
{{- end -}}

{{- define "nereid.args" -}}
- tritonserver
{{- range .Values.models.repositories }}
- {{ printf "--model-repository=%s" . | quote }}
{{- end }}
- --model-control-mode={{ .Values.server.modelControlMode }}
{{- if eq .Values.server.modelControlMode "poll" }}
- --repository-poll-secs={{ int .Values.server.repositoryPollSecs }}
{{- end }}
{{- range .Values.server.loadModels }}
- {{ printf "--load-model=%s" . | quote }}
{{- end }}
- --strict-readiness={{ .Values.server.strictReadiness }}
- --exit-on-error={{ .Values.server.exitOnError }}
- --exit-timeout-secs={{ int .Values.server.exitTimeoutSecs }}
- --exit-grace-secs={{ int .Values.server.exitGraceSecs }}
- --log-format={{ .Values.server.logFormat }}
{{- if .Values.models.cache.enabled }}
- --repository-cache-directory={{ .Values.models.cache.mountPath }}
- --repository-cache-bytes={{ int64 .Values.models.cache.bytes }}
{{- end }}
{{- if .Values.keys.secret }}
- --keys-file=/etc/nereid/keys/{{ .Values.keys.key }}
{{- end }}
{{- if .Values.tls.secret }}
- --http-use-ssl=true
- --http-server-cert=/etc/nereid/tls/tls.crt
- --http-server-key=/etc/nereid/tls/tls.key
- --grpc-use-ssl=true
- --grpc-server-cert=/etc/nereid/tls/tls.crt
- --grpc-server-key=/etc/nereid/tls/tls.key
{{- if .Values.tls.mutual }}
- --grpc-use-ssl-mutual=true
- --grpc-root-cert=/etc/nereid/tls/ca.crt
{{- end }}
{{- end }}
{{- if .Values.control.enabled }}
- --control-address=0.0.0.0:{{ int .Values.control.port }}
{{- end }}
{{- with .Values.server.args }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "nereid.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  {{- if .root.Values.tls.secret }}
  scheme: HTTPS
  {{- end }}
{{ toYaml .settings }}
{{- end -}}

{{- define "nereid.pod" -}}
metadata:
  labels:
    {{- include "nereid.labels" . | nindent 4 }}
    # By these, endpoint pickers know whose metrics they read: files/picker.yaml.
    inference.networking.k8s.io/engine-type: nereid
    llm-d.ai/engine-type: nereid
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or .Values.podAnnotations .Values.monitoring.annotations }}
  annotations:
    {{- if .Values.monitoring.annotations }}
    prometheus.io/scrape: "true"
    prometheus.io/port: "8002"
    prometheus.io/path: /metrics
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  serviceAccountName: {{ include "nereid.serviceAccount" . }}
  automountServiceAccountToken: {{ .Values.serviceAccount.automountToken }}
  # Longer than the server takes for what is in flight, behind the preStop.
  terminationGracePeriodSeconds: {{ add (int .Values.server.preStopSecs) (int .Values.server.exitTimeoutSecs) 15 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- /* Kubernetes would give the group write permission in a kept cache at each start, and the server refuses such a cache. */}}
  {{- $security := default dict .Values.podSecurityContext }}
  {{- if or .Values.models.cache.volume .Values.models.cache.claim }}
  {{- $security = merge (deepCopy $security) (dict "fsGroupChangePolicy" "OnRootMismatch") }}
  {{- end }}
  {{- with $security }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: nereid
      image: {{ include "nereid.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        {{- include "nereid.args" . | nindent 8 }}
      {{- if or .Values.env .Values.models.credentials.fileSecret }}
      env:
        {{- if .Values.models.credentials.fileSecret }}
        - name: {{ .Values.models.credentials.fileVariable }}
          value: /etc/nereid/store/{{ .Values.models.credentials.fileKey }}
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- if or .Values.envFrom .Values.models.credentials.envSecret }}
      envFrom:
        {{- with .Values.models.credentials.envSecret }}
        - secretRef:
            name: {{ . }}
        {{- end }}
        {{- with .Values.envFrom }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      ports:
        - name: http
          containerPort: 8000
        - name: grpc
          containerPort: 8001
        - name: metrics
          containerPort: 8002
        {{- if .Values.control.enabled }}
        - name: control
          containerPort: {{ .Values.control.port }}
        {{- end }}
      {{- with int .Values.server.preStopSecs }}
      lifecycle:
        preStop:
          exec:
            command: [sleep, {{ . | quote }}]
      {{- end }}
      startupProbe:
        {{- include "nereid.probe" (dict "root" . "path" "/v2/health/ready" "settings" .Values.probes.startup) | nindent 8 }}
      readinessProbe:
        {{- include "nereid.probe" (dict "root" . "path" "/v2/health/ready" "settings" .Values.probes.readiness) | nindent 8 }}
      livenessProbe:
        {{- include "nereid.probe" (dict "root" . "path" "/v2/health/live" "settings" .Values.probes.liveness) | nindent 8 }}
      {{- $resources := deepCopy .Values.resources }}
      {{- if .Values.gpu.count }}
      {{- $resources = mergeOverwrite $resources (dict "limits" (dict .Values.gpu.resource (toString .Values.gpu.count))) }}
      {{- end }}
      {{- with $resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        - name: shm
          mountPath: /dev/shm
        {{- if or .Values.models.volume .Values.models.claim }}
        - name: models
          mountPath: {{ .Values.models.mountPath }}
          readOnly: {{ .Values.models.readOnly }}
        {{- end }}
        {{- if .Values.models.cache.enabled }}
        - name: cache
          mountPath: {{ .Values.models.cache.mountPath }}
        {{- end }}
        {{- if .Values.models.credentials.fileSecret }}
        - name: store
          mountPath: /etc/nereid/store
          readOnly: true
        {{- end }}
        {{- if .Values.keys.secret }}
        - name: keys
          mountPath: /etc/nereid/keys
          readOnly: true
        {{- end }}
        {{- if .Values.tls.secret }}
        - name: tls
          mountPath: /etc/nereid/tls
          readOnly: true
        {{- end }}
        {{- with .Values.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with .Values.sidecars }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: tmp
      emptyDir:
        sizeLimit: {{ .Values.temporary }}
    - name: shm
      emptyDir:
        medium: Memory
        sizeLimit: {{ .Values.sharedMemory }}
    {{- with .Values.models.volume }}
    - name: models
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- if and .Values.models.cache.enabled (not .Values.models.cache.claim) }}
    - name: cache
      {{- with .Values.models.cache.volume }}
      {{- toYaml . | nindent 6 }}
      {{- else }}
      emptyDir:
        sizeLimit: {{ .Values.models.cache.sizeLimit }}
      {{- end }}
    {{- end }}
    {{- with .Values.models.credentials.fileSecret }}
    - name: store
      secret:
        secretName: {{ . }}
    {{- end }}
    {{- with .Values.keys.secret }}
    - name: keys
      secret:
        secretName: {{ . }}
    {{- end }}
    {{- with .Values.tls.secret }}
    - name: tls
      secret:
        secretName: {{ . }}
    {{- end }}
    {{- with .Values.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $taints := .Values.tolerations }}
  {{- if and .Values.gpu.count .Values.gpu.toleration }}
  {{- $taints = append $taints (dict "key" "nvidia.com/gpu" "operator" "Exists" "effect" "NoSchedule") }}
  {{- end }}
  {{- with $taints }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- if .Values.topologySpreadConstraints }}
    {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "nereid.selector" . | nindent 10 }}
    {{- end }}
{{- end -}}
