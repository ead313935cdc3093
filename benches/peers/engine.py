"""An engine in a process of its own, and how busy the machine was while it worked."""

import json
import os
import pathlib
import subprocess
import tempfile

TICKS = os.sysconf("SC_CLK_TCK")
# Some machines force old kernels on OpenBLAS with these; GPUs are not what is measured.
DROPPED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_NUM_THREADS", "LD_LIBRARY_PATH")


def environment(threads):
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    number = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), str(threads))
    # numpy only pools; its idle workers would spin.
    return {**kept, **number, "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def busy_secs():
    """CPU seconds that all cores were busy for, those that the hypervisor took included."""
    fields = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


class Engine:
    """A process that speaks the protocol of `peers serve`; fails with what it wrote to standard error."""

    def __init__(self, name, command, threads):
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        self.process = subprocess.Popen(command, text=True, env=environment(threads), **pipes)
        self.about = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            last = self.errors.read().strip().splitlines()[-1:] or ["it says nothing"]
            raise RuntimeError(f"{self.name} ended: {last[0]}")
        return json.loads(line)

    def cpu_secs(self):
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(stat[11]) + int(stat[12])) / TICKS

    def embed(self, workload, documents=None, out=None):
        """One pass: seconds, the cores it had, and the share of all cores that others had meanwhile."""
        busy, own = busy_secs(), self.cpu_secs()
        request = {"workload": workload, "documents": documents, "out": out and str(out)}
        print(json.dumps(request), file=self.process.stdin, flush=True)
        secs = self.answer()["secs"]
        own = self.cpu_secs() - own
        others = max(0.0, busy_secs() - busy - own)
        return {"secs": secs, "cores": own / secs, "others": others / (os.cpu_count() * secs)}

    def peak_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) // 1024

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()
