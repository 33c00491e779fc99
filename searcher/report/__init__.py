"""The report of a job: its contents (`ReportData`), its figures and the page."""

from syncswitch.storage.former import former_names

__getattr__ = former_names(__name__, {"syncswitch": "ReportData load_report"})
