"""Process and GPU: what the service takes of its machine."""

from deploy.grafana.panels import Row, plot
from deploy.grafana.promql import rate, total

PROCESS = Row(
    "Process and GPU",
    (
        plot("CPU", "Cores in use.", "none", (rate("process_cpu_seconds_total", "instance"), "{{instance}}")),
        plot("Memory", "Resident.", "bytes", (total("process_resident_memory_bytes", "instance"), "{{instance}}")),
        plot("Open files", "Connections among them.", "none", (total("process_open_fds", "instance"), "{{instance}}")),
        plot(
            "Request log",
            "Records by what became of them.",
            "cps",
            (rate("recall_request_log_records_total", "result"), "{{result}}"),
        ),
        plot(
            "GPU memory",
            "Empty where the model lives on the CPU.",
            "bytes",
            (total("recall_gpu_memory_bytes", "instance", "state"), "{{instance}} {{state}}"),
            is_stacked=True,
        ),
    ),
)
