from dlio_torch import errors as errors
from dlio_torch import iotrace as iotrace
from dlio_torch.api.configuration import compose as compose
from dlio_torch.api.datasets import datapipe as datapipe
from dlio_torch.api.datasets import dataset as dataset
from dlio_torch.api.emulated_step import emulated_step as emulated_step
from dlio_torch.api.loaders import loader as loader
from dlio_torch.api.runs import Run as Run
from dlio_torch.api.runs import load_run as load_run
from dlio_torch.api.runs import run as run

__version__: str
