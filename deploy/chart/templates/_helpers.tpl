{{/* The name of all objects. A release whose name contains the chart's has its own name, and others `RELEASE-nft-proxier`. */}}
{{- define "nft-proxier.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "nft-proxier.labels" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The labels of pods, by which other objects select them. They never change, and differ between releases. */}}
{{- define "nft-proxier.podLabels" -}}
k8s-app: nft-proxier
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "nft-proxier.serviceAccountName" -}}
{{- $account := .Values.serviceAccount | default dict -}}
{{- $account.name | default (ternary "default" (include "nft-proxier.fullname" .) (eq $account.create false)) -}}
{{- end }}
